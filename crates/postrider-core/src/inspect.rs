//! The interfaces for operators: the command line and the dashboard. Never on the hot path.
//!
//! [`Inspect`] reads; [`Operate`] changes.

use crate::{
    Error, MessageId, OrderingKey, PruneRequest, QueueName, Reason, ScheduleName, TenantId,
    follow_up::{FollowUpFilter, FollowUpRow, StatusCounts},
};
use async_trait::async_trait;
use std::{
    collections::BTreeMap,
    fmt::Debug,
    time::{Duration, SystemTime},
};

mod action;
mod counts;
mod find;
mod list;
mod operate;
mod selection;

pub use action::{Action, AuditRow};
pub use counts::{CappedCount, Counts};
pub use find::{ActiveTimer, DeduplicationRecord, FindBy};
pub use list::{Cursor, ListRequest, MessageRow, Page, StateFilter};
pub use operate::Operate;
pub use selection::{
    ChangeReport, Chunk, DeadGroup, ERROR_KIND_CHARS, Fence, Selection, SelectionSummary, error_kind,
};

/// Reads a store for operators, and changes nothing.
#[async_trait]
pub trait Inspect: Debug + Send + Sync + 'static {
    /// The number of messages of each queue in each state. Bounded: counting stops at a cap.
    async fn counts(&self) -> Result<BTreeMap<QueueName, Counts>, Error>;

    /// The lag: the time since the oldest due message became due; `None` when no message is due.
    async fn lag(&self, queue: &QueueName) -> Result<Option<Duration>, Error>;

    /// The keys that are blocked by a retry or parked until an operator releases them, oldest first.
    async fn blocked_keys(&self, queue: &QueueName, limit: usize) -> Result<Vec<BlockedKey>, Error>;

    /// One page of messages.
    async fn list(&self, request: &ListRequest) -> Result<Page, Error>;

    /// One message, in any state.
    async fn get(&self, queue: &QueueName, id: MessageId) -> Result<Option<MessageRow>, Error>;

    /// The exact size of a selection, and its end at this moment. One statement, without payloads.
    async fn summarize(&self, selection: &Selection) -> Result<SelectionSummary, Error>;

    /// Dead letters of one queue or of all, grouped by reason and error, largest group first. The counts are exact.
    async fn dead_groups(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<DeadGroup>, Error>;

    /// Up to `limit` messages by id, subject, key or trace, in any queue and state, oldest first.
    async fn find(&self, by: &FindBy, limit: usize) -> Result<Vec<MessageRow>, Error>;

    /// The number of messages of the same key ahead of a message; `None` when the message is not pending or leased, or its queue is
    /// unordered. Bounded like [`counts`](Self::counts).
    async fn ahead(&self, queue: &QueueName, id: MessageId) -> Result<Option<CappedCount>, Error>;

    /// The deduplication records of a message of a tenant, or of none.
    async fn deduplication_records(
        &self,
        tenant: Option<&TenantId>,
        id: MessageId,
    ) -> Result<Vec<DeduplicationRecord>, Error>;

    /// Up to `limit` active timers of one queue or of all, sorted by queue and name.
    async fn timers(&self, queue: Option<&QueueName>, limit: usize) -> Result<Vec<ActiveTimer>, Error>;

    /// The exact number of rows that [`prune`](crate::Store::prune) would delete now in all its calls, and of audit rows older than the
    /// given age.
    async fn prunable(
        &self,
        request: &PruneRequest,
        audit_older_than: Option<Duration>,
    ) -> Result<Prunable, Error>;

    /// The cron schedules that were ever read, by name.
    async fn schedules(&self) -> Result<Vec<ScheduleRow>, Error>;

    /// The store's clock.
    async fn clock(&self) -> Result<SystemTime, Error>;

    /// The operator actions on a message, newest first.
    async fn audit_of(&self, id: MessageId, limit: usize) -> Result<Vec<AuditRow>, Error>;

    /// The operator actions, newest first.
    async fn audit(&self, limit: usize) -> Result<Vec<AuditRow>, Error>;

    /// The exact number of follow-ups of a queue in each status.
    async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error>;

    /// Up to `limit` follow-ups of a queue.
    async fn follow_up_rows(
        &self,
        queue: &QueueName,
        filter: FollowUpFilter,
        limit: usize,
    ) -> Result<Vec<FollowUpRow>, Error>;
}

/// A cron schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRow {
    /// Its name.
    pub name: ScheduleName,
    /// The last recorded tick, or the time when the schedule was first read.
    pub last: SystemTime,
}

/// The number of rows past their retention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prunable {
    /// Delivered messages past their retention.
    pub archived: u64,
    /// Dead letters.
    pub dead: u64,
    /// Deduplication records of the inbox.
    pub inbox: u64,
    /// Audit rows of operator actions.
    pub audit: u64,
}

/// A blocked or parked key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedKey {
    /// The key.
    pub key: OrderingKey,
    /// The message at its head.
    pub head: MessageId,
    /// The time of the retry; `None` when the key is parked until an operator releases it.
    pub due_at: Option<SystemTime>,
    /// The reason of a permanent failure.
    pub reason: Option<Reason>,
    /// The error.
    pub error: Option<String>,
}
