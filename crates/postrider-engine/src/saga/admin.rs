//! Administration of follow-ups: status, lists, requeue and erasure.

use super::{RequeueReport, SagaRunner, requeue::requeue};
use postrider_core::{
    AuditError, AuditEvent, AuditKind, Error, MessageId, SubjectId, TenantId, TxBackend,
    follow_up::{ErasureReport, FollowUpFilter, FollowUpRow, StatusCounts},
    inspect::Action,
    inspect::{Inspect as _, Operate as _},
};
use std::time::Duration;

impl<S: TxBackend> SagaRunner<S> {
    /// The number of follow-ups in each status; every status is listed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn status_counts(&self) -> Result<StatusCounts, Error> {
        self.executor.store.backend().status_counts(&self.queue).await
    }

    /// Abandoned follow-ups, the oldest abandonment first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_abandoned(&self, limit: usize) -> Result<Vec<FollowUpRow>, Error> {
        self.executor.store.backend().follow_up_rows(&self.queue, FollowUpFilter::Abandoned, limit).await
    }

    /// Scheduled follow-ups, the earliest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_scheduled(&self, limit: usize) -> Result<Vec<FollowUpRow>, Error> {
        self.executor.store.backend().follow_up_rows(&self.queue, FollowUpFilter::Scheduled, limit).await
    }

    /// Follow-ups that have not succeeded although they were staged longer ago than `than`, the oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn overdue(&self, than: Duration, limit: usize) -> Result<Vec<FollowUpRow>, Error> {
        self.executor.store.backend().follow_up_rows(&self.queue, FollowUpFilter::Overdue(than), limit).await
    }

    /// Requeues abandoned follow-ups, with no attempt counted. Others are skipped. The ledger gets the events of all of
    /// them first; if it does not answer, nothing is requeued. A repeated call changes nothing.
    ///
    /// # Errors
    /// When the ledger or the store fails.
    pub async fn requeue(&self, ids: &[MessageId], action: &Action) -> Result<RequeueReport, AuditError> {
        requeue(&self.executor.store.backend(), &*self.sink, &self.queue, ids, action).await
    }

    /// Erases the data of a subject from the outbox, the archive and the dead letters, in all queues, and records that and
    /// how much in the ledger. Messages in flight stay, and so do follow-ups that have not succeeded: see
    /// [`ErasureReport`].
    ///
    /// # Errors
    /// When the store or the ledger fails. A repeated call finishes the erasure.
    pub async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<ErasureReport, AuditError> {
        action.check()?;
        let erased_event = |messages| AuditEvent {
            tenant: tenant.cloned(),
            subject: Some(subject.clone()),
            actor: Some(action.actor.clone()),
            messages,
            ..AuditEvent::new(AuditKind::Erased)
        };
        // Before the erasure, as every event; and after it, since only then the amount is known.
        self.sink.append(&[erased_event(None)]).await?;
        let erased = self.executor.store.backend().erase_subject(tenant, subject, action).await?;
        self.sink.append(&[erased_event(Some(erased.waiting + erased.dead + erased.archived))]).await?;
        Ok(erased)
    }
}
