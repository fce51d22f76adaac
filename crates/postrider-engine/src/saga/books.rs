//! Where outcomes are told before they are so.

use postrider_core::{AuditError, AuditEvent, AuditKind, AuditSink, Follow, FollowUp, MessageId};
use std::{sync::Arc, time::SystemTime};

/// Where outcomes are told.
#[derive(Debug, Clone)]
pub(super) enum Books {
    /// In the ledger of the store's own database, in the transaction of the outcome.
    Own,
    /// Somewhere else, before.
    Other(Arc<dyn AuditSink>),
}

impl Books {
    /// Tells it before the transaction begins, if it has to be then.
    pub(super) async fn before(&self, events: &[AuditEvent]) -> Result<(), AuditError> {
        match self {
            Self::Own => Ok(()),
            Self::Other(sink) => sink.append(events).await,
        }
    }

    /// Tells it at the end of the transaction: all of it, if nothing was told before; otherwise what has come to light since.
    pub(super) async fn within<S: Follow>(
        &self,
        store: &S,
        tx: &mut S::Tx,
        told: &[AuditEvent],
        new: &[AuditEvent],
    ) -> Result<(), AuditError> {
        match self {
            Self::Own => store.record(tx, &[told, new].concat()).await,
            Self::Other(sink) if !new.is_empty() => sink.append(new).await,
            Self::Other(_) => Ok(()),
        }
    }
}

/// Something that became of a follow-up.
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

/// A time as events carry it.
pub(super) fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
