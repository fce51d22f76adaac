//! The follow-ups of one subject and operation.

use crate::{EventType, QueueName, SubjectId, TenantId};

/// The follow-ups of one subject and operation: when the last of them succeeds, the group is complete.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FollowUpGroup {
    /// The queue.
    pub queue: QueueName,
    /// The tenant of the subject.
    pub tenant: Option<TenantId>,
    /// The subject.
    pub subject: SubjectId,
    /// The operation.
    pub operation: EventType,
}

/// The progress of a group after a follow-up has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupProgress {
    /// The lease was lost. Nothing changed: roll back.
    Lost,
    /// The follow-up succeeded; others of its group are unfinished or abandoned.
    Open,
    /// The follow-up succeeded and completed its group. No other transaction gets this result, if this one commits.
    Last,
}
