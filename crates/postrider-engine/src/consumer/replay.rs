//! Replays: parked messages that an operator has requeued.
//!
//! They are carried by the shared loop, from the queue whose dead letters they were, and run by the same handlers. The inbox decides
//! whether they run at all: one that had its effect before, by another delivery, is done with, and nothing is done.

use super::{Consumed, Consumer, mail::arrival_of, work::Work};
use crate::{
    carry::{Deliver, Delivery, Outcome, Together},
    failure::Failure,
    judge::{Judge, claimed_too_often},
};
use futures_util::future::BoxFuture;
use postrider_core::{
    Admission, Claimed, Error, Incoming, Letter, MessageId, Reason, Receive, Settlement,
    inspect::{Action, Operate},
};
use std::{
    fmt,
    sync::{Arc, OnceLock, Weak},
};

/// What became of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// How many of the messages were there to be requeued.
    pub requeued: u64,
    /// Ran, with their effects committed.
    pub processed: u64,
    /// Had had their effects before: nothing was done.
    pub duplicates: u64,
    /// Failed again; they are tried again, as the strategy of retries says.
    pub failed: u64,
    /// Are dead letters again.
    pub parked: u64,
}

impl<R: Receive> Consumer<R>
where
    R::Store: Operate,
{
    /// Requeues parked messages and runs them here and now. Where a consumer of the same name runs elsewhere, it may take some of them:
    /// then they are requeued, and not among those that ended here.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn replay(&self, ids: &[MessageId], action: &Action) -> Result<Replayed, Error> {
        let before = self.consumed();
        let requeued = self.work.store.store().requeue(&self.work.queue, ids, action).await?.len() as u64;
        let tally = self.work.carrier.run_until_idle().await?;
        let now = self.consumed() - before;
        let duplicates = now.duplicates;
        if duplicates > 0 {
            tracing::info!(
                name: "postrider.replayed_in_vain",
                consumer = %self.work.name, duplicates, "had had their effects before: nothing was done"
            );
        }
        Ok(Replayed {
            requeued,
            processed: tally.delivered.saturating_sub(duplicates),
            duplicates,
            failed: tally.retried,
            parked: tally.dead,
        })
    }
}

/// Delivers what was requeued.
pub(super) struct Replay<R: Receive> {
    /// Set once the consumer is made, which holds the loop that holds this.
    pub(super) work: OnceLock<Weak<Work<R>>>,
    pub(super) judge: Judge,
    pub(super) max_deliveries: Option<u32>,
}

impl<R: Receive> Deliver for Replay<R> {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        Box::pin(async move {
            if let Some(dead) = claimed_too_often(self.max_deliveries, delivery) {
                return Outcome::Settle(dead);
            }
            let Some(work) = self.work.get().and_then(Weak::upgrade) else {
                return Outcome::Settle(Settlement::Release);
            };
            match work.replay(delivery).await {
                Ok(Ok(outcome)) => outcome,
                Ok(Err(failure)) => Outcome::Settle(self.judge.settle(&failure, delivery)),
                Err(error) => {
                    work.trouble.happened("replaying", &error);
                    Outcome::Settle(self.judge.settle(&Failure::retry(error), delivery))
                }
            }
        })
    }

    fn commits(&self, _: &Delivery) -> bool {
        true
    }

    fn leaves(&self) -> bool {
        false
    }

    fn together(&self) -> Option<&dyn Together> {
        None
    }
}

impl<R: Receive> Work<R> {
    async fn replay(&self, delivery: &Arc<Delivery>) -> Result<Result<Outcome, Failure>, Error> {
        let letter = match self.letter_of(&delivery.claimed) {
            Ok(letter) => letter,
            Err(dead) => return Ok(Ok(Outcome::Settle(dead))),
        };
        let mut tx = self.store.begin().await?;
        let admitted = match self.store.admit_all(&mut tx, &self.name, &[arrival_of(&letter)]).await {
            Ok(admitted) => admitted.first().copied().unwrap_or(Admission::Duplicate),
            Err(error) => {
                self.store.rollback(tx).await.ok();
                return Err(error);
            }
        };
        if admitted.is_first() {
            let (back, result) = self.handle(tx, &letter, Some(delivery.claimed.deliveries)).await;
            match (back, result) {
                (Some(back), Ok(())) => tx = back,
                (back, result) => {
                    if let Some(back) = back {
                        self.store.rollback(back).await?;
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
        let (processed, duplicates) = if admitted.is_first() { (1, 0) } else { (0, 1) };
        self.counts.add(Consumed { processed, duplicates, ..Consumed::default() });
        Ok(Ok(Outcome::Committed(Settlement::Done)))
    }

    /// What was parked, as it is now understood.
    fn letter_of(&self, claimed: &Claimed) -> Result<Letter, Settlement> {
        let Some(incoming) = Incoming::kept(&claimed.message) else {
            return Ok(Letter::of(claimed.message.clone(), claimed.id(), claimed.staged_at));
        };
        incoming.read(&self.queue).map_err(|invalid| {
            let error = Some(invalid.to_string());
            Settlement::Dead { reason: Reason::Undecodable, error }
        })
    }
}

impl<R: Receive> fmt::Debug for Replay<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").finish_non_exhaustive()
    }
}
