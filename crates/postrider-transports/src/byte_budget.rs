//! The bytes that a source holds: received, and not yet acked.
//!
//! Brokers count messages: a batch of a thousand may be a megabyte or a gigabyte. A source that knows the mean size of its messages asks
//! for as many as fit into its budget. So it exceeds the budget by one batch at most, when messages grow suddenly.

use postrider_core::{Incoming, Invalid};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};
use tokio::sync::Notify;

/// The default of all sources.
pub(crate) const MAX_BYTES_IN_FLIGHT: usize = 64 << 20;

/// The assumed size of a message before the first ones were received.
const FIRST_MEAN: usize = 256 << 10;

/// A budget of bytes in flight, shared by its clones.
#[derive(Debug, Clone)]
pub(crate) struct ByteBudget(Arc<Budget>);

#[derive(Debug)]
struct Budget {
    max: usize,
    in_flight: AtomicUsize,
    /// The mean size of the last messages.
    mean: AtomicUsize,
    freed: Notify,
}

/// The bytes of one message in flight, freed when this is dropped: with the ack handle of the message.
#[derive(Debug)]
pub(crate) struct BytesInFlight {
    budget: ByteBudget,
    bytes: usize,
}

impl ByteBudget {
    pub(crate) fn new(max: usize) -> Self {
        let (in_flight, mean, freed) = (AtomicUsize::new(0), AtomicUsize::new(FIRST_MEAN), Notify::new());
        Self(Arc::new(Budget { max, in_flight, mean, freed }))
    }

    /// Checks the setting of a builder.
    pub(crate) fn check(max: usize) -> Result<(), Invalid> {
        match max {
            0 => Err(Invalid::rule("max_bytes_in_flight", "is zero; nothing would be received: give more")),
            _ => Ok(()),
        }
    }

    pub(crate) fn max(&self) -> usize {
        self.0.max
    }

    /// Adds a received message.
    pub(crate) fn add(&self, incoming: &Incoming) -> BytesInFlight {
        let bytes = size(incoming);
        self.0.in_flight.fetch_add(bytes, Relaxed);
        // The last messages weigh most, so that the mean follows the sizes within a batch.
        let mean = self.0.mean.load(Relaxed);
        self.0.mean.store((mean - mean / 4 + bytes / 4).max(1), Relaxed);
        BytesInFlight { budget: self.clone(), bytes }
    }

    /// The bytes that are not in use.
    pub(crate) fn free(&self) -> usize {
        self.0.max.saturating_sub(self.0.in_flight.load(Relaxed))
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.0.in_flight.load(Relaxed) == 0
    }

    /// The number of messages, of `wanted`, that fit into the free bytes. A message larger than the budget is received alone.
    pub(crate) fn messages(&self, wanted: usize) -> usize {
        let fitting = self.free() / self.0.mean.load(Relaxed);
        fitting.max(usize::from(self.is_idle())).min(wanted)
    }

    /// The number of messages, of `wanted`, that fit into the whole budget; at least one.
    pub(crate) fn prefetch(&self, wanted: usize) -> usize {
        (self.0.max / self.0.mean.load(Relaxed)).clamp(1, wanted.max(1))
    }

    /// Waits until bytes were freed. May return early.
    pub(crate) async fn freed(&self) {
        self.0.freed.notified().await;
    }

    /// Waits until at least one message fits, and returns how many, of `wanted`, do.
    pub(crate) async fn reserve(&self, wanted: usize) -> usize {
        loop {
            match self.messages(wanted) {
                0 if wanted > 0 => self.freed().await,
                fitting => return fitting,
            }
        }
    }
}

impl Drop for BytesInFlight {
    fn drop(&mut self) {
        self.budget.0.in_flight.fetch_sub(self.bytes, Relaxed);
        self.budget.0.freed.notify_one();
    }
}

fn size(incoming: &Incoming) -> usize {
    let pairs = incoming.attributes.iter().chain(&incoming.headers);
    incoming.body.len() + pairs.map(|(name, value)| name.len() + value.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn message(bytes: usize) -> Incoming {
        Incoming::new("orders", vec![b'x'; bytes])
    }

    #[test]
    fn messages_follow_the_mean_size() {
        let budget = ByteBudget::new(1 << 20);
        assert_eq!(budget.messages(1_000), 4, "before the first message");
        drop((0..50).map(|_| budget.add(&message(100))).collect::<Vec<_>>());
        assert_eq!((budget.messages(1_000), budget.prefetch(250)), (1_000, 250));
        drop((0..50).map(|_| budget.add(&message(512 << 10))).collect::<Vec<_>>());
        assert!(budget.messages(1_000) <= 3 && budget.prefetch(250) <= 3);
    }

    #[tokio::test]
    async fn full_budget_fits_nothing_until_bytes_are_freed() {
        let budget = ByteBudget::new(1_000);
        let (first, second) = (budget.add(&message(600)), budget.add(&message(600)));
        assert_eq!((budget.free(), budget.messages(10)), (0, 0));
        assert!(budget.reserve(10).now_or_never().is_none());
        drop(first);
        drop(second);
        assert!(budget.is_idle() && budget.reserve(10).await > 0);
    }

    #[tokio::test]
    async fn message_larger_than_the_budget_is_received_alone() {
        let budget = ByteBudget::new(10);
        assert_eq!(budget.reserve(100).await, 1);
        let large = budget.add(&message(1_000));
        assert_eq!((budget.messages(100), budget.prefetch(100)), (0, 1));
        drop(large);
        assert_eq!(budget.messages(100), 1);
        assert_eq!(budget.reserve(0).await, 0);
    }
}
