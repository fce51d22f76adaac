//! Replays: dead-lettered messages that an operator has requeued.
//!
//! The shared delivery loop delivers them from the consumer's dead-letter queue to the same handlers. The inbox decides whether
//! they are handled at all: a message that took effect before, by another delivery, is settled without being handled.

use super::{Consumer, in_flight::arrival_of, processor::Processor};
use crate::{
    delivery_loop::{BatchDeliver, Deliver, Delivery, Outcome},
    failure::Failure,
    failure_policy::{FailurePolicy, settle_max_deliveries},
    runner::Report,
};
use futures_util::future::BoxFuture;
use postrider_core::{
    Admission, ClaimedMessage, DecodedMessage, Error, Incoming, MessageId, Reason, Settlement, TxBackend,
    inspect::{Action, Operate as _},
};
use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

/// The result of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReplayReport {
    /// Number of messages that were found and requeued.
    pub requeued: u64,
    /// Handled; their effects are committed.
    pub delivered: u64,
    /// Skipped as duplicates: their effects happened before.
    pub duplicates: u64,
    /// Failed; they are retried by the retry strategy.
    pub retried: u64,
    /// Dead-lettered again.
    pub dead: u64,
}

impl<R: TxBackend> Consumer<R> {
    /// Requeues dead letters and handles them here and now. A consumer of the same name in another process may take some of
    /// them: those count as requeued, and not in the other counts.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn replay(&self, ids: &[MessageId], action: &Action) -> Result<ReplayReport, Error> {
        let before = self.report();
        let requeued =
            self.processor.store.backend().requeue(&self.processor.queue, ids, action).await?.len() as u64;
        let report = self.processor.engine.run_until_idle().await?;
        let duplicates = (self.report() - before).duplicates;
        if duplicates > 0 {
            tracing::info!(
                name: "postrider.replay_skipped",
                consumer = %self.processor.name, duplicates, "{duplicates} replayed messages of consumer {} skipped: already processed", self.processor.name
            );
        }
        Ok(ReplayReport {
            requeued,
            delivered: report.delivered.saturating_sub(duplicates),
            duplicates,
            retried: report.retried,
            dead: report.dead,
        })
    }
}

/// Delivers requeued messages.
pub(super) struct ReplayDeliver<R: TxBackend> {
    /// Set once the consumer is built, which owns the loop that owns this.
    pub(super) processor: OnceLock<Weak<Processor<R>>>,
    pub(super) failure_policy: FailurePolicy,
    pub(super) max_deliveries: Option<u32>,
}

impl<R: TxBackend> Deliver for ReplayDeliver<R> {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        Box::pin(async move {
            if let Some(dead) = settle_max_deliveries(self.max_deliveries, delivery) {
                return Outcome::Settle(dead);
            }
            let Some(processor) = self.processor.get().and_then(Weak::upgrade) else {
                return Outcome::Settle(Settlement::Release);
            };
            match processor.replay(delivery).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(failure)) => Outcome::Settle(self.failure_policy.settle(&failure, delivery)),
                Err(error) => {
                    processor.store_outage.report("replay messages", &error);
                    Outcome::Settle(self.failure_policy.settle(&Failure::retry(error), delivery))
                }
            }
        })
    }

    fn settles_itself(&self, _: &Delivery) -> bool {
        true
    }

    fn keeps_lease_when_cancelled(&self) -> bool {
        false
    }

    fn as_batch(&self) -> Option<&dyn BatchDeliver> {
        None
    }
}

impl<R: TxBackend> Processor<R> {
    async fn replay(&self, delivery: &Arc<Delivery>) -> Result<Result<Outcome, Failure>, Error> {
        let decoded = match self.decode(&delivery.claimed) {
            Ok(decoded) => decoded,
            Err(dead) => return Ok(Ok(Outcome::Settle(dead))),
        };
        let mut tx = self.store.begin().await?;
        let admitted = match self.store.admit_in(&mut tx, &self.name, &[arrival_of(&decoded)]).await {
            Ok(admitted) => admitted.first().copied().unwrap_or(Admission::Duplicate),
            Err(error) => {
                self.store.rollback(tx).await.ok();
                return Err(error);
            }
        };
        if admitted.is_first() {
            let (returned, result) = self.handle(tx, &decoded, Some(delivery.claimed.deliveries)).await;
            match (returned, result) {
                (Some(returned), Ok(())) => tx = returned,
                (returned, result) => {
                    if let Some(returned) = returned {
                        self.store.rollback(returned).await?;
                    }
                    return Ok(Err(result
                        .err()
                        .unwrap_or_else(|| Failure::retry("the transaction is gone"))));
                }
            }
        }
        if !self.store.settle_in(&mut tx, &delivery.claimed.lease.done()).await? {
            self.store.rollback(tx).await?;
            return Ok(Ok(Outcome::Lost));
        }
        self.store.commit(tx).await?;
        let (delivered, duplicates) = if admitted.is_first() { (1, 0) } else { (0, 1) };
        self.metrics.record_outcomes(Report { delivered, duplicates, ..Report::default() });
        Ok(Ok(Outcome::Committed(Settlement::Done)))
    }

    /// The dead letter, decoded again.
    fn decode(&self, claimed: &ClaimedMessage) -> Result<DecodedMessage, Settlement> {
        let Some(incoming) = Incoming::kept(&claimed.message) else {
            return Ok(DecodedMessage::of(claimed.message.clone(), claimed.id(), claimed.staged_at));
        };
        self.decoder.decode(&incoming).map_err(|invalid| {
            let error = Some(invalid.to_string());
            Settlement::Dead { reason: Reason::Undecodable, error }
        })
    }
}

impl<R: TxBackend> fmt::Debug for ReplayDeliver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayDeliver").finish_non_exhaustive()
    }
}
