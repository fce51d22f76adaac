//! The audit trail of outcomes.

use postrider_core::{AuditError, AuditEvent, AuditKind, AuditSink, FollowUp, MessageId, TxBackend};
use std::{sync::Arc, time::SystemTime};

/// The target of audit events.
#[derive(Debug, Clone)]
pub(super) enum AuditTarget {
    /// The ledger of the store's own database, in the transaction of the outcome.
    StoreLedger,
    /// Another sink, before that transaction.
    Sink(Arc<dyn AuditSink>),
}

impl AuditTarget {
    /// Writes the events before the transaction begins, if the target is a sink of its own.
    pub(super) async fn append_before(&self, events: &[AuditEvent]) -> Result<(), AuditError> {
        match self {
            Self::StoreLedger => Ok(()),
            Self::Sink(sink) => sink.append(events).await,
        }
    }

    /// Writes the events at the end of the transaction: all of them to the store's ledger; to another sink only the `new`
    /// ones.
    pub(super) async fn append_within<S: TxBackend>(
        &self,
        store: &S,
        tx: &mut S::Tx,
        events: &[AuditEvent],
        new: &[AuditEvent],
    ) -> Result<(), AuditError> {
        match self {
            Self::StoreLedger => store.record(tx, &[events, new].concat()).await,
            Self::Sink(sink) if !new.is_empty() => sink.append(new).await,
            Self::Sink(_) => Ok(()),
        }
    }
}

/// An audit event of a follow-up.
pub(super) fn event(kind: AuditKind, follow_up: &FollowUp, id: MessageId) -> AuditEvent {
    AuditEvent {
        tenant: follow_up.tenant().cloned(),
        subject: Some(follow_up.subject().clone()),
        operation: Some(follow_up.operation().clone()),
        resolver: Some(follow_up.resolver().clone()),
        follow_up: Some(id),
        ..AuditEvent::new(kind)
    }
}

/// A time as audit events have it.
pub(super) fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
