//! Operator actions on a store. Never on the hot path.

use super::{Action, ChangeReport, Chunk, Inspect, Selection};
use crate::{
    Error, Message, MessageId, OrderingKey, Pausable, QueueName, StageReport, SubjectId, TenantId, TimerName,
    follow_up::ErasureReport,
};
use async_trait::async_trait;
use std::time::Duration;

/// Changes a store on behalf of an operator. Every change writes an audit row in the same transaction.
#[async_trait]
pub trait Operate: Inspect {
    /// Requeues dead letters under their own ids, in the order of their keys, with their counters reset. Returns the requeued ids.
    async fn requeue(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error>;

    /// Deletes messages that are not leased, dead letters included. Returns the deleted ids.
    async fn discard(
        &self,
        queue: &QueueName,
        ids: &[MessageId],
        action: &Action,
    ) -> Result<Vec<MessageId>, Error>;

    /// Releases a blocked or parked key. `false` when the key was not blocked.
    async fn release_key(&self, queue: &QueueName, key: &OrderingKey, action: &Action)
    -> Result<bool, Error>;

    /// Pauses a queue or a destination. Leased messages are settled as usual, and staging continues. `false` when it was paused
    /// already.
    async fn pause(&self, what: &Pausable, action: &Action) -> Result<bool, Error>;

    /// Resumes a queue or a destination, and notifies idle workers. `false` when it was not paused.
    async fn resume(&self, what: &Pausable, action: &Action) -> Result<bool, Error>;

    /// Requeues the next dead letters of a selection, as [`requeue`](Self::requeue) does, in one transaction with one audit row. They are
    /// requeued in the order of their positions: within a key, never before an earlier one that is selected, too. Follow-ups are
    /// skipped. Delivered messages that are kept can be requeued, too: they are delivered again under their own ids, in the order of
    /// their deliveries; the audit calls that `replay`.
    ///
    /// A message is requeued once, however often it fails meanwhile: on an unordered queue it gets a new position behind the fence; on an
    /// ordered one it keeps its position, which has been passed.
    async fn requeue_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error>;

    /// Deletes the next messages of a selection, as [`discard`](Self::discard) does, in one transaction with one audit row. Follow-ups are
    /// skipped.
    async fn discard_next(
        &self,
        selection: &Selection,
        chunk: &Chunk,
        action: &Action,
    ) -> Result<ChangeReport, Error>;

    /// Stages copies of delivered messages that a queue keeps, and audits their originals, in one transaction. Without copies it only
    /// audits, for messages that are sent elsewhere.
    async fn replay(
        &self,
        queue: &QueueName,
        originals: &[MessageId],
        copies: &[Message],
        action: &Action,
    ) -> Result<StageReport, Error>;

    /// Cancels a timer. `false` when there is no timer of that name, or it is being delivered.
    async fn drop_timer(&self, queue: &QueueName, timer: &TimerName, action: &Action) -> Result<bool, Error>;

    /// Deletes up to `limit` audit rows older than `age`, oldest first, and audits that once for each queue. Returns the number of
    /// deleted rows.
    async fn prune_audit(&self, age: Duration, limit: usize, action: &Action) -> Result<u64, Error>;

    /// Deletes every message about a subject: pending, scheduled, dead or delivered. It leaves leased messages and follow-ups that have
    /// not succeeded, because those may be what erases the subject elsewhere, and reports their numbers. The audit row does not name
    /// the subject.
    ///
    /// The inbox stays unchanged: it holds message ids and nothing about subjects, and without its deduplication records a redelivered
    /// message would have its effects again.
    async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<ErasureReport, Error>;
}
