//! Delivering to one destination, and the settlement that follows from the publish result.

use super::{
    batcher::{Batcher, PublishResult, no_result},
    drain_gate::DrainGate,
    route::{Filter, Transform},
};
use crate::{
    delivery_loop::{BatchDeliver, CircuitGate, Deliver, Delivery, Outcome, ReportSettlements},
    failure::{Failure, Next},
    failure_policy::{FailurePolicy, settle_max_deliveries},
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_core::{Format, Outgoing, PublishError, QueueName, Settlement, Template};
use std::{borrow::Cow, fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::task::coop::consume_budget;
use tracing::{Instrument, Span};

/// Publishes the messages of a queue to one destination.
pub(super) struct SingleTarget {
    pub(super) target: Arc<ResolvedTarget>,
    pub(super) source: Arc<str>,
    pub(super) failure_policy: FailurePolicy,
    pub(super) max_deliveries: Option<u32>,
    /// The declared ordering of its queue: a per-destination queue of a route must be ordered as its source queue is.
    pub(super) is_ordered: Option<bool>,
    /// Holds back messages of ordered queues while earlier ones wait in the per-destination queue.
    pub(super) drain_gate: Option<Arc<DrainGate>>,
}

/// A resolved route target: a destination, the address there, and the message format.
pub(super) struct ResolvedTarget {
    pub(super) batcher: Arc<Batcher>,
    /// The queue of messages that other destinations of the route accepted, and this one has not.
    pub(super) queue: QueueName,
    /// The queue of the route, from which messages come to the other one.
    pub(super) route_queue: QueueName,
    pub(super) address: Template,
    pub(super) format: Format,
    pub(super) filter: Option<Filter>,
    pub(super) transform: Option<Transform>,
}

impl Deliver for SingleTarget {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        in_relay_span(self.settle(delivery), delivery, &self.target.batcher.destination)
    }

    fn settles_itself(&self, _: &Delivery) -> bool {
        false
    }

    fn keeps_lease_when_cancelled(&self) -> bool {
        false
    }

    fn as_batch(&self) -> Option<&dyn BatchDeliver> {
        Some(self)
    }
}

impl BatchDeliver for SingleTarget {
    fn max_batch(&self) -> usize {
        self.target.batcher.capacity.batch
    }

    fn deliver_all<'d>(
        &'d self,
        deliveries: &'d [Arc<Delivery>],
        report: &'d ReportSettlements<'d>,
    ) -> BoxFuture<'d, ()> {
        Box::pin(async move {
            let spans = Spans::begin(deliveries, &self.target.batcher.destination);
            let (mut outgoing, mut unsent) = (Vec::with_capacity(deliveries.len()), Vec::new());
            for (index, delivery) in deliveries.iter().enumerate() {
                match spans.of(index, || self.prepare(delivery)) {
                    Ok(encoded) => outgoing.push((index, encoded)),
                    Err(settlement) => unsent.push((index, settlement)),
                }
                // There may be hundreds of messages, each with user functions: lets other tasks run in between.
                consume_budget().await;
            }
            if outgoing.is_empty() {
                self.target.batcher.breaker.release();
            }
            let mut is_pending = vec![true; deliveries.len()];
            unsent.iter().for_each(|(index, _)| is_pending[*index] = false);
            report(unsent);
            let mut batches = self.target.batcher.send_all(outgoing);
            while let Some(batch) = batches.recv().await {
                let settled = batch.into_iter().map(|(index, result)| {
                    is_pending[index] = false;
                    (index, spans.of(index, || self.settlement_for(result, &deliveries[index])))
                });
                report(settled.collect());
            }
            let left = is_pending.iter().enumerate().filter(|(_, is_pending)| **is_pending);
            report(
                left.map(|(index, _)| (index, self.settlement_for(Err(no_result()), &deliveries[index])))
                    .collect(),
            );
        })
    }
}

/// The spans of deliveries in one batch, until each of them has ended.
pub(super) struct Spans(Vec<Span>);

impl Spans {
    pub(super) fn begin(deliveries: &[Arc<Delivery>], destination: &str) -> Self {
        let begin = |delivery: &Arc<Delivery>| {
            let span = span_of(delivery, destination);
            #[cfg(feature = "opentelemetry")]
            crate::trace_link::link(&span, delivery.claimed.message.trail());
            span
        };
        Self(deliveries.iter().map(begin).collect())
    }

    /// Runs a function in the span of a delivery.
    pub(super) fn of<T>(&self, index: usize, run: impl FnOnce() -> T) -> T {
        match self.0.get(index) {
            Some(span) => span.in_scope(run),
            None => run(),
        }
    }
}

/// Runs a delivery in its span.
pub(super) fn in_relay_span<'d>(
    settling: impl Future<Output = Settlement> + Send + 'd,
    delivery: &Delivery,
    destination: &str,
) -> BoxFuture<'d, Outcome> {
    let span = span_of(delivery, destination);
    let settling = settling.map(Outcome::Settle);
    #[cfg(feature = "opentelemetry")]
    let settling = crate::trace_link::run_linked(settling, &span, delivery.claimed.message.trail());
    Box::pin(settling.instrument(span))
}

fn span_of(delivery: &Delivery, destination: &str) -> Span {
    let claimed = &delivery.claimed;
    tracing::info_span!(
        "postrider.relay",
        queue = %claimed.lease.queue(),
        message_id = %claimed.id(),
        destination,
        attempt = claimed.attempts.saturating_add(1),
        deliveries = claimed.deliveries,
        correlation = claimed.message.trail().correlation_id.as_deref(),
        traceparent = claimed.message.trail().traceparent.as_deref(),
    )
}

impl SingleTarget {
    async fn settle(&self, delivery: &Arc<Delivery>) -> Settlement {
        if let Some(gate) = &self.drain_gate
            && let Some(settlement) = gate.hold_back(delivery).await
        {
            self.target.batcher.breaker.release();
            return settlement;
        }
        match self.prepare(delivery) {
            Ok(outgoing) => self.settlement_for(self.target.batcher.send(outgoing).await, delivery),
            Err(settlement) => {
                self.target.batcher.breaker.release();
                settlement
            }
        }
    }

    /// The encoded message, or the settlement if it is not sent.
    fn prepare(&self, delivery: &Delivery) -> Result<Outgoing, Settlement> {
        let unsendable = settle_policy_mismatch(self.is_ordered, delivery);
        if let Some(settlement) = unsendable.or_else(|| settle_max_deliveries(self.max_deliveries, delivery))
        {
            return Err(settlement);
        }
        match self.target.encode(delivery, &self.source) {
            Ok(Some(outgoing)) => Ok(outgoing),
            Ok(None) => Err(Settlement::Done),
            Err(failure) => Err(self.failure_policy.settle(&failure, delivery)),
        }
    }

    /// The settlement that follows from a publish result.
    fn settlement_for(&self, result: PublishResult, delivery: &Delivery) -> Settlement {
        match result {
            Ok(_) => Settlement::Done,
            // Not the message's fault: it is released, and no attempt is counted.
            Err(PublishError::Unavailable { .. }) => Settlement::Release,
            // The next probe is a message that may have another address.
            Err(PublishError::AddressUnavailable { .. }) => Settlement::Snooze { after: PROBED_DELAY },
            Err(error) => self.failure_policy.settle(&failure_of(error), delivery),
        }
    }
}

/// The queue's policy is not what its route declares: nothing is sent, since order would be lost.
pub(super) fn settle_policy_mismatch(is_ordered: Option<bool>, delivery: &Delivery) -> Option<Settlement> {
    let lease = &delivery.claimed.lease;
    let expected = is_ordered.filter(|is_ordered| *is_ordered != lease.turn().is_some())?;
    tracing::error!(
        name: "postrider.policy_mismatch", queue = %lease.queue(), is_ordered = expected,
        "policy of queue {} differs from its route; its messages wait: call `Relay::declare`, or give the route the queue's policy",
        lease.queue()
    );
    Some(Settlement::Snooze { after: POLICY_MISMATCH_DELAY })
}

/// Delay of a probe whose address is unavailable.
const PROBED_DELAY: Duration = Duration::from_secs(5);
/// Delay of messages of a queue whose policy differs.
const POLICY_MISMATCH_DELAY: Duration = Duration::from_secs(10);

fn failure_of(error: PublishError) -> Failure {
    let next = match &error {
        PublishError::Retry { after: Some(after), .. } => Next::RetryAfter(*after),
        PublishError::Reject { .. } => Next::Reject,
        _ => Next::Retry,
    };
    let name = error.name();
    Failure::of_kind(next, name, error)
}

impl ResolvedTarget {
    /// The message as it is sent to this target; `None` when the filter excludes it. Encoded anew for each attempt: that is
    /// cheap, and nothing is kept.
    pub(super) fn encode(&self, delivery: &Delivery, source: &Arc<str>) -> Result<Option<Outgoing>, Failure> {
        let claimed = &delivery.claimed;
        // A copy is the message of the route's queue: it has the same address, and the same function filters it.
        let message = match claimed.lease.queue() == &self.queue {
            true => &claimed.message.redirected(self.route_queue.clone()),
            false => &claimed.message,
        };
        let rejected = |kind: &'static str, error: String| Failure::of_kind(Next::Reject, kind, error);
        // User functions may panic: that must not stop the relay.
        let selected = std::panic::catch_unwind(AssertUnwindSafe(|| {
            if self.filter.as_ref().is_some_and(|filter| !filter(message)) {
                return Ok(None);
            }
            match &self.transform {
                None => Ok(Some(Cow::Borrowed(message))),
                Some(transform) => transform(message).build().map(|changed| Some(Cow::Owned(changed))),
            }
        }));
        let message = match selected {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(invalid)) => return Err(rejected("InvalidMessage", invalid.to_string())),
            Err(_) => {
                return Err(Failure::of_kind(
                    Next::Retry,
                    "Panic",
                    "the filter or the transformation of the route panicked",
                ));
            }
        };
        let address =
            self.address.render(&message).map_err(|invalid| rejected("NoAddress", invalid.to_string()))?;
        let outgoing = Outgoing::write(
            &message,
            claimed.id(),
            claimed.staged_at,
            Arc::clone(source),
            address,
            self.format,
        )
        .map_err(|invalid| Failure::of_kind(Next::Undecodable, "InvalidMessage", invalid.to_string()))?;
        if let Some(max_bytes) =
            self.batcher.capacity.message_bytes.filter(|max_bytes| outgoing.size() > *max_bytes)
        {
            let error = format!(
                "the message has {} bytes, more than {} accepts ({max_bytes})",
                outgoing.size(),
                self.batcher.destination
            );
            return Err(rejected("TooLarge", error));
        }
        Ok(Some(outgoing))
    }
}

impl fmt::Debug for SingleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleTarget").field("target", &self.target).finish_non_exhaustive()
    }
}

impl fmt::Debug for ResolvedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedTarget")
            .field("batcher", &self.batcher)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
