//! Follow-ups as operators see them: see [`Inspect::follow_up_rows`](crate::inspect::Inspect::follow_up_rows).

use super::FollowUpStatus;
use crate::{Message, MessageId};
use std::time::{Duration, SystemTime};

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
