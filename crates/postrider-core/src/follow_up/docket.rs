//! The seam for those who look after follow-ups.

use super::{Status, StatusCounts};
use crate::{Error, Message, MessageId, QueueName, SubjectId, TenantId, inspect::Action};
use async_trait::async_trait;
use std::{
    fmt::Debug,
    time::{Duration, SystemTime},
};

/// Looks at follow-ups, and removes what is kept of a subject. Reading changes nothing.
#[async_trait]
pub trait FollowUps: Debug + Send + Sync + 'static {
    /// How many follow-ups a queue has in each status, counted to the last one.
    async fn status_counts(&self, queue: &QueueName) -> Result<StatusCounts, Error>;

    /// Up to `limit` follow-ups of a queue.
    async fn dockets(&self, queue: &QueueName, which: Which, limit: usize) -> Result<Vec<Docket>, Error>;

    /// Removes every message about a subject, wherever it is: due, waiting, dead or kept. It does not touch what is in somebody's hands,
    /// nor follow-ups that have not succeeded, for they may be what erases it elsewhere; it says how many those are. Leaves a row among what operators
    /// did, in the same transaction, without the subject's name.
    ///
    /// The inbox holds identities of messages and nothing about their subjects, and is left alone: without its marks a message that is
    /// delivered again would have its effect again.
    async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<Erased, Error>;
}

/// Which follow-ups are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those given up, the longest ago first.
    Abandoned,
    /// Those not before their time, the nearest first.
    Scheduled,
    /// Those that have not succeeded although they were staged longer ago than this, the oldest first: given up or not.
    Overdue(Duration),
}

/// A follow-up as somebody sees who looks after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Docket {
    /// Its identity.
    pub id: MessageId,
    /// Its message. It reads as a follow-up, unless somebody staged something else in the queue.
    pub message: Message,
    /// What state it is in.
    pub status: Status,
    /// When it was staged.
    pub staged_at: SystemTime,
    /// When it is due, or was given up.
    pub at: SystemTime,
    /// How often it was claimed: each is an attempt.
    pub deliveries: u32,
    /// The kind of error that it failed with last.
    pub error: Option<String>,
}

/// What was removed of a subject.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Erased {
    /// Messages that were due or waiting.
    pub waiting: u64,
    /// Dead letters.
    pub dead: u64,
    /// Messages that were kept after success.
    pub archived: u64,
    /// Messages that are in somebody's hands and were left: ask again.
    pub in_hand: u64,
    /// Follow-ups that have not succeeded and were left.
    pub follow_ups: u64,
}
