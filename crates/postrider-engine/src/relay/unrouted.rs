//! Pending messages of destinations that a route no longer has.

use postrider_core::{
    Error, QueueName,
    inspect::{CappedCount, Counts, Inspect},
};
use std::collections::{BTreeMap, BTreeSet};

/// The per-destination queues of the store that hold messages and are none of `routed`.
pub(super) async fn unrouted_queues(
    inspect: &dyn Inspect,
    routed: &BTreeSet<QueueName>,
) -> Result<BTreeMap<QueueName, CappedCount>, Error> {
    let counts = inspect.counts().await?.into_iter();
    let unrouted = counts.filter(|(queue, _)| queue.as_str().contains('>') && !routed.contains(queue));
    Ok(unrouted
        .map(|(queue, counts)| (queue, undelivered(&counts)))
        .filter(|(_, it)| it.at_least > 0)
        .collect())
}

/// The messages of a queue that are not delivered yet.
fn undelivered(counts: &Counts) -> CappedCount {
    let states = [counts.pending, counts.leased, counts.scheduled];
    CappedCount {
        at_least: states.iter().map(|state| state.at_least).sum(),
        capped: states.iter().any(|state| state.capped),
    }
}

/// Logs the queues that no route of this relay delivers.
pub(super) async fn warn_of_unrouted_queues(inspect: &dyn Inspect, routed: &BTreeSet<QueueName>) {
    match unrouted_queues(inspect, routed).await {
        Ok(unrouted) => {
            for (queue, messages) in unrouted {
                let (route, destination) = queue.as_str().split_once('>').unwrap_or_default();
                let (at_least, messages) =
                    (if messages.capped { "at least " } else { "" }, messages.at_least);
                tracing::warn!(
                    name: "postrider.unrouted_queue", %queue, messages,
                    "queue {queue} holds {at_least}{messages} messages that no route of this relay delivers: add destination \
                     {destination:?} to the route of queue {route} again, or discard them"
                );
            }
        }
        // Such as a role that may not read every table.
        Err(error) => tracing::info!(
            name: "postrider.unrouted_unchecked", %error,
            "queues of removed destinations not checked: {error}; postrider doctor checks them as well"
        ),
    }
}
