//! The ledger: an append-only audit log of the outcomes of follow-ups.
//!
//! An event is appended before, or in the same transaction as, the change it records, so that every outcome is in the ledger. A process
//! that fails in between repeats the change, and the ledger then has the event twice.

mod chain;

pub use chain::{
    AuditChain, BEGINNING, ChainBreak, ChainHead, ChainLink, Hash, Verifier, VerifyError, verify,
};

use crate::{Error, EventType, Invalid, MessageId, ResolverName, SubjectId, TenantId};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::{fmt::Debug, time::SystemTime};
use uuid::Uuid;

/// An append-only ledger of audit events.
#[async_trait]
pub trait AuditSink: Debug + Send + Sync + 'static {
    /// Appends all events, in order, or none.
    async fn append(&self, events: &[AuditEvent]) -> Result<(), AuditError>;

    /// The events of a subject, oldest first.
    async fn read(&self, subject: &SubjectId) -> Result<Vec<AuditRecord>, AuditError>;

    /// Up to `limit` events that were appended at this time or later, oldest first.
    async fn read_since(&self, at: SystemTime, limit: usize) -> Result<Vec<AuditRecord>, AuditError>;
}

/// An error of a ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// An event with this id exists already; nothing was appended.
    #[error("audit event {0} exists already")]
    Duplicate(Uuid),
    /// An event cannot be read: another version wrote the ledger, or somebody changed it. No other event is returned either, because a
    /// list with a gap would look complete.
    #[error("event {position} of the ledger cannot be read: {why}; run `postrider audit verify`")]
    Unreadable {
        /// The position, from 1.
        position: u64,
        /// The cause.
        why: String,
    },
    /// An event is invalid.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The ledger is unavailable: retry.
    #[error(transparent)]
    Store(#[from] Error),
}

/// An audit event: an outcome of a follow-up, or an operator action. It carries names and kinds of errors, never error texts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEvent {
    /// The id of the event.
    pub id: Uuid,
    /// The kind of event.
    pub kind: AuditKind,
    /// The tenant of the subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The subject.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectId>,
    /// The operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<EventType>,
    /// The resolver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolver: Option<ResolverName>,
    /// The follow-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_up: Option<MessageId>,
    /// The kind of the error, never its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The number of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The time to which it was rescheduled, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The operator, for an operator action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The number of affected messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// The step of a saga, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}

impl AuditEvent {
    /// An event of a kind.
    pub fn new(kind: AuditKind) -> Self {
        Self {
            id: Uuid::new_v4(),
            kind,
            tenant: None,
            subject: None,
            operation: None,
            resolver: None,
            follow_up: None,
            error: None,
            attempt: None,
            until_ms: None,
            actor: None,
            messages: None,
            step: None,
        }
    }
}

/// The kind of an audit event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditKind {
    /// A call succeeded, or was not needed any more.
    Succeeded,
    /// A follow-up was rescheduled to a time that its resolver named.
    Scheduled,
    /// A follow-up was abandoned.
    Abandoned,
    /// A step of a saga failed, and its compensation began.
    Failed,
    /// The last follow-up of a subject and an operation succeeded.
    Completed,
    /// A saga ended with all steps compensated.
    Compensated,
    /// An operator requeued a follow-up.
    Requeued,
    /// An operator resolved a saga step whose outcome was unknown.
    Resolved,
    /// The messages of a subject were erased.
    Erased,
}

/// An audit event with its position and time in the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRecord {
    /// The position in the ledger, from 1.
    pub position: u64,
    /// The time of appending, by the ledger's clock.
    pub at: SystemTime,
    /// The event.
    pub event: AuditEvent,
}
