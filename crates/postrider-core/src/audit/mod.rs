//! The ledger: what became of follow-ups, written down before it is so.
//!
//! An event is appended before the state changes that it tells of, so that nothing has an outcome which the ledger does not know. Who
//! fails in between does it again, and the ledger then tells it twice. It is appended to and read, and nothing else.

mod chain;

pub use chain::{BEGINNING, Break, Chain, Hash, Head, Link, Unverified, Verifier, verify};

use crate::{Error, EventType, Invalid, MessageId, ResolverName, SubjectId, TenantId};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::{fmt::Debug, future::Future, time::SystemTime};
use uuid::Uuid;

/// Where events are appended, and read again.
#[async_trait]
pub trait AuditSink: Debug + Send + Sync + 'static {
    /// Appends all of them, in their order, or none.
    async fn append(&self, events: &[AuditEvent]) -> Result<(), AuditError>;

    /// What is known of a subject, oldest first.
    async fn read(&self, subject: &SubjectId) -> Result<Vec<Recorded>, AuditError>;

    /// Up to `limit` events that were appended at this time or later, oldest first.
    async fn read_since(&self, at: SystemTime, limit: usize) -> Result<Vec<Recorded>, AuditError>;
}

/// Appends to the ledger of the same database, in a transaction of type `Tx` that belongs to the caller: the event is there if and only
/// if what it tells of is.
pub trait Audit<Tx> {
    /// Appends all of them, in their order. Whoever appends holds up everybody else who does until the transaction ends: do it last.
    fn record(
        &self,
        tx: &mut Tx,
        events: &[AuditEvent],
    ) -> impl Future<Output = Result<(), AuditError>> + Send;
}

/// Why a ledger did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditError {
    /// There is an event of this identity already; nothing was appended.
    #[error("the event {0} is there already")]
    Duplicate(Uuid),
    /// An event cannot be read: the ledger is of another version, or somebody has been at it. Nothing is told of the others either, for an
    /// answer with a gap would look like the whole truth.
    #[error("event {position} of the ledger cannot be read: {why}; verify the ledger")]
    Unreadable {
        /// Which, counted from 1.
        position: u64,
        /// What is wrong.
        why: String,
    },
    /// An event breaks a rule.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// The ledger cannot be reached: try again.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Something that became of a follow-up, or that somebody did. It carries names, and nothing that an error said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEvent {
    /// Its own identity.
    pub id: Uuid,
    /// What happened.
    pub kind: AuditKind,
    /// Whose subject it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Whom it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectId>,
    /// What was to be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<EventType>,
    /// Who was to do it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolver: Option<ResolverName>,
    /// The follow-up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_up: Option<MessageId>,
    /// The kind of error, never its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Which attempt it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Until when it was put off, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// Who did it, where somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// How many messages it was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// The step of a saga, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}

impl AuditEvent {
    /// Something happened.
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

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AuditKind {
    /// A call succeeded, or there was nothing left to do.
    Succeeded,
    /// A follow-up was put off until a time that its resolver named.
    Scheduled,
    /// A follow-up was given up.
    Abandoned,
    /// A step of a saga failed, and is made good.
    Failed,
    /// The last follow-up of a subject and an operation succeeded.
    Completed,
    /// A saga ended with everything undone.
    Compensated,
    /// Somebody put a follow-up back.
    Requeued,
    /// Somebody said how a step of a saga had ended, of which nobody knew.
    Resolved,
    /// What was kept of a subject was removed.
    Erased,
}

/// An event as the ledger has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    /// Its place in the ledger, counted from 1.
    pub position: u64,
    /// When it was appended, by the ledger's clock.
    pub at: SystemTime,
    /// What happened.
    pub event: AuditEvent,
}
