//! Fan-out: one queue, several destinations.
//!
//! Each destination accepts, rejects and fails on its own, so one that lags must not hold up the others, nor may messages be
//! sent to the others again. A message is published to all destinations at once; for each destination that did not accept it, a
//! copy is staged in a **per-destination queue**, in the step that settles the message. From there on each is a route with one
//! destination: its own retries, its own dead letters, its own circuit breaker.
//!
//! On an ordered queue every message takes that path, to every destination: published directly, the next message of a key could
//! overtake one that waits in a per-destination queue.

use super::{
    circuit_breaker::CircuitBreaker,
    deliver::{ResolvedTarget, Spans, in_relay_span, settle_policy_mismatch},
};
use crate::{
    delivery_loop::{BatchDeliver, CircuitGate, ClaimPermit, Deliver, Delivery, Outcome, ReportSettlements},
    failure_policy::settle_max_deliveries,
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, join_all, select_all},
};
use postrider_core::{Error, Message, PublishError, Settlement, Store};
use std::{sync::Arc, time::Duration};
use tokio::task::coop::consume_budget;

/// The `destination` of spans and logs where a route has several.
const SEVERAL: &str = "several";

/// Publishes the messages of a queue to several destinations.
#[derive(Debug)]
pub(super) struct FanOut {
    pub(super) targets: Vec<Arc<ResolvedTarget>>,
    pub(super) source: Arc<str>,
    pub(super) max_deliveries: Option<u32>,
    pub(super) is_ordered: bool,
}

impl Deliver for FanOut {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        let settling = async move {
            let mut settled = self.settle(std::slice::from_ref(delivery)).await;
            settled.pop().unwrap_or(Settlement::Release)
        };
        in_relay_span(settling, delivery, SEVERAL)
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

impl BatchDeliver for FanOut {
    fn max_batch(&self) -> usize {
        self.targets.iter().map(|target| target.batcher.capacity.batch).max().unwrap_or(1)
    }

    fn deliver_all<'d>(
        &'d self,
        deliveries: &'d [Arc<Delivery>],
        report: &'d ReportSettlements<'d>,
    ) -> BoxFuture<'d, ()> {
        Box::pin(async move {
            let _spans = Spans::begin(deliveries, SEVERAL);
            report(self.settle(deliveries).await.into_iter().enumerate().collect());
        })
    }
}

/// The result of publishing a message to one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetResult {
    /// The target accepted it, or its filter excludes it.
    Accepted,
    Failed,
    /// The destination is unavailable.
    Unavailable,
}

impl FanOut {
    /// The settlement of each delivery.
    async fn settle(&self, deliveries: &[Arc<Delivery>]) -> Vec<Settlement> {
        let unsendable: Vec<Option<Settlement>> = deliveries.iter().map(|one| self.unsendable(one)).collect();
        let sendable: Vec<(usize, &Arc<Delivery>)> =
            deliveries.iter().enumerate().filter(|(index, _)| unsendable[*index].is_none()).collect();
        let all_results =
            join_all(self.targets.iter().map(|target| self.send(target, &sendable, deliveries.len()))).await;
        let settle = |(index, settlement): (usize, Option<Settlement>)| {
            settlement.unwrap_or_else(|| {
                let results = || {
                    self.targets.iter().zip(&all_results).map(|(target, results)| (target, results[index]))
                };
                if results().all(|(_, result)| result == TargetResult::Unavailable) {
                    // No destination has it: the message stays in its queue.
                    return Settlement::Release;
                }
                let pending = results().filter(|(_, result)| *result != TargetResult::Accepted);
                self.forward(&deliveries[index], pending.map(|(target, _)| target))
            })
        };
        unsendable.into_iter().enumerate().map(settle).collect()
    }

    /// The settlement of a message that is not sent from here.
    fn unsendable(&self, delivery: &Delivery) -> Option<Settlement> {
        settle_policy_mismatch(Some(self.is_ordered), delivery)
            .or_else(|| settle_max_deliveries(self.max_deliveries, delivery))
            .or_else(|| self.is_ordered.then(|| self.forward(delivery, self.targets.iter())))
    }

    /// Publishes to one target and returns the results by index.
    async fn send(
        &self,
        target: &Arc<ResolvedTarget>,
        sendable: &[(usize, &Arc<Delivery>)],
        count: usize,
    ) -> Vec<TargetResult> {
        let mut results = vec![TargetResult::Failed; count];
        let mut outgoing = Vec::with_capacity(sendable.len());
        for (index, delivery) in sendable {
            match target.encode(delivery, &self.source) {
                Ok(Some(encoded)) => outgoing.push((*index, encoded)),
                Ok(None) => results[*index] = TargetResult::Accepted,
                // Delivery from the per-destination queue fails again, and is settled there.
                Err(_) => {}
            }
            consume_budget().await;
        }
        if outgoing.is_empty() {
            target.batcher.breaker.release();
        }
        let mut batches = target.batcher.send_all(outgoing);
        while let Some(batch) = batches.recv().await {
            for (index, result) in batch {
                results[index] = match result {
                    Ok(_) => TargetResult::Accepted,
                    Err(PublishError::Unavailable { .. }) => TargetResult::Unavailable,
                    Err(_) => TargetResult::Failed,
                };
            }
        }
        results
    }

    /// Forwards the message to the per-destination queues of these targets.
    fn forward<'l>(
        &self,
        delivery: &Delivery,
        targets: impl Iterator<Item = &'l Arc<ResolvedTarget>>,
    ) -> Settlement {
        let message = &delivery.claimed.message;
        let messages: Arc<[Message]> =
            targets.map(|target| message.redirected(target.queue.clone())).collect();
        if messages.is_empty() { Settlement::Done } else { Settlement::Forward { messages } }
    }
}

/// Permits claims as long as the circuit of any destination does.
#[derive(Debug)]
pub(super) struct AnyTargetGate(pub(super) Vec<Arc<CircuitBreaker>>);

impl CircuitGate for AnyTargetGate {
    fn refresh<'g>(&'g self, store: &'g dyn Store) -> BoxFuture<'g, Result<(), Error>> {
        // All destinations of a relay share their operator pauses.
        match self.0.first() {
            Some(breaker) => breaker.refresh(store),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn acquire(&self) -> ClaimPermit {
        let mut denied_for = Duration::MAX;
        for breaker in &self.0 {
            match breaker.acquire() {
                ClaimPermit::Denied(wait) => denied_for = denied_for.min(wait),
                permit => return permit,
            }
        }
        ClaimPermit::Denied(denied_for)
    }

    fn release(&self) {
        self.0.iter().for_each(|breaker| breaker.release());
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        Box::pin(select_all(self.0.iter().map(|breaker| breaker.changed())).map(|_| ()))
    }
}
