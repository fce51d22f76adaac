//! The seam for operators who mend something. Never on the hot path.

use super::{Action, Changed, Chunk, Inspect, Selection};
use crate::{Error, Message, MessageId, OrderingKey, Pausable, QueueName, Staged, TimerName};
use async_trait::async_trait;
use std::time::Duration;

/// Mends by hand what is in a store. Every change leaves an audit row in its own transaction.
#[async_trait]
pub trait Operate: Inspect {
    /// Puts dead letters back, each under its own identity and in its key's order, with its counters at zero. Answers with
    /// those that were there.
    async fn requeue(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error>;

    /// Removes messages that are not in anybody's hands, dead letters included. Answers with those that were there.
    async fn discard(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error>;

    /// Lets a blocked key run again now. `false` when it was not blocked.
    async fn release_key(&self, queue: &QueueName, key: &OrderingKey, action: &Action)
    -> Result<bool, Error>;

    /// Lets work wait from now on, whatever comes due. What is in somebody's hands ends as usual, and staging goes on. `false` when it
    /// was paused already, which changes nothing.
    async fn pause(&self, what: &Pausable, action: &Action) -> Result<bool, Error>;

    /// Lets it go on, and wakes those who sleep for it. `false` when it was not paused.
    async fn resume(&self, what: &Pausable, action: &Action) -> Result<bool, Error>;

    /// Puts the next dead letters of a selection back, as [`requeue`](Self::requeue) does, in one transaction with one audit row. They
    /// come in the order of their places: of one key, none comes back before one that was staged earlier and is selected, too. Follow-ups
    /// are passed over. What is kept after success can be put back, too: it is delivered once more, under its own identity, in the order in
    /// which it was delivered; the audit calls that `replay`.
    ///
    /// A message is put back once, however often it fails meanwhile: on an unordered queue it gets a new place, behind the fence; on an
    /// ordered one it keeps its own, which has been passed.
    async fn requeue_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<Changed, Error>;

    /// Removes the next messages of a selection, as [`discard`](Self::discard) does, in one transaction with one audit row. Follow-ups are
    /// passed over.
    async fn discard_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<Changed, Error>;

    /// Stages copies of messages that a queue keeps, and writes down which were the originals, in one transaction. Without copies only
    /// that is written, for those that are sent elsewhere.
    async fn replay(
        &self,
        queue: &QueueName,
        originals: &[MessageId],
        copies: &[Message],
        action: &Action,
    ) -> Result<Staged, Error>;

    /// Cancels a timer. `false` when there is none of that name, or it is being delivered.
    async fn drop_timer(&self, queue: &QueueName, timer: &TimerName, action: &Action) -> Result<bool, Error>;

    /// Removes up to `limit` rows of what operators did longer ago than `age`, the oldest first, and writes that down, once for each
    /// queue. Answers how many were removed.
    async fn prune_audit(&self, age: Duration, limit: usize, action: &Action) -> Result<u64, Error>;
}
