//! The operators' interface to follow-ups.

use super::{FollowUpStatus, StatusCounts};
use crate::{Error, Message, MessageId, QueueName, SubjectId, TenantId, inspect::Action};
use async_trait::async_trait;
use std::{
    fmt::Debug,
    time::{Duration, SystemTime},
};

/// Lists follow-ups, and erases the messages of a subject.
#[async_trait]
pub trait FollowUps: Debug + Send + Sync + 'static {
    /// The exact number of follow-ups of a queue in each status.
    async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error>;

    /// Up to `limit` follow-ups of a queue.
    async fn follow_up_rows(
        &self,
        queue: &QueueName,
        which: FollowUpFilter,
        limit: usize,
    ) -> Result<Vec<FollowUpRow>, Error>;

    /// Deletes every message about a subject: pending, scheduled, dead or delivered. It leaves leased messages and follow-ups that have
    /// not succeeded, because those may be what erases the subject elsewhere, and reports their numbers. It writes an audit row in the
    /// same transaction, without the subject's name.
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

/// A filter of follow-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowUpFilter {
    /// Abandoned follow-ups, oldest first.
    Abandoned,
    /// Scheduled follow-ups, next first.
    Scheduled,
    /// Follow-ups staged longer ago than this that have not succeeded, abandoned or not, oldest first.
    Overdue(Duration),
}

/// A follow-up with its status and counters.
#[derive(Debug, Clone, PartialEq)]
pub struct FollowUpRow {
    /// The id.
    pub id: MessageId,
    /// Its message. It decodes as a follow-up, unless another message was staged in the queue.
    pub message: Message,
    /// The status.
    pub status: FollowUpStatus,
    /// The time of staging.
    pub staged_at: SystemTime,
    /// The due time, or the time of abandonment.
    pub at: SystemTime,
    /// The number of claims; each is an attempt.
    pub deliveries: u32,
    /// The kind of the last error.
    pub error: Option<String>,
}

/// The result of an erasure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErasureReport {
    /// Deleted pending and scheduled messages.
    pub waiting: u64,
    /// Deleted dead letters.
    pub dead: u64,
    /// Deleted delivered messages.
    pub archived: u64,
    /// Leased messages that were left: erase again later.
    pub in_flight: u64,
    /// Unfinished follow-ups that were left.
    pub follow_ups: u64,
}
