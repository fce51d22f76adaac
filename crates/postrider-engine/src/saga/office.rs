//! What those do who look after follow-ups.

use super::{Requeued, SagaRunner, requeue::requeue};
use postrider_core::{
    AuditError, AuditEvent, AuditKind, Error, Follow, FollowUps as _, MessageId, SubjectId, TenantId,
    follow_up::{Docket, Erased, StatusCounts, Which},
    inspect::Action,
};
use std::time::Duration;

impl<S: Follow> SagaRunner<S> {
    /// How many follow-ups there are in each status; every status is there.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn status_counts(&self) -> Result<StatusCounts, Error> {
        self.courier.store.store().status_counts(&self.queue).await
    }

    /// Follow-ups that were given up, the longest ago first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_abandoned(&self, limit: usize) -> Result<Vec<Docket>, Error> {
        self.courier.store.store().dockets(&self.queue, Which::Abandoned, limit).await
    }

    /// Follow-ups that wait for a time that was named, the nearest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn list_scheduled(&self, limit: usize) -> Result<Vec<Docket>, Error> {
        self.courier.store.store().dockets(&self.queue, Which::Scheduled, limit).await
    }

    /// Follow-ups that have not succeeded although they were staged longer ago `than` this, the oldest first.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn overdue(&self, than: Duration, limit: usize) -> Result<Vec<Docket>, Error> {
        self.courier.store.store().dockets(&self.queue, Which::Overdue(than), limit).await
    }

    /// Puts abandoned follow-ups back, with no attempt behind them. Others are skipped. The ledger is told first, of all of them; if it does
    /// not answer, nothing is put back. To do it again changes nothing.
    ///
    /// # Errors
    /// When the ledger or the store fails.
    pub async fn requeue(&self, ids: &[MessageId], action: &Action) -> Result<Requeued, AuditError> {
        requeue(&self.courier.store.store(), &*self.sink, &self.queue, ids, action).await
    }

    /// Removes what the outbox, the archive and the dead letters hold of a subject, in all queues, and tells the ledger that and how much.
    /// What is in somebody's hands is left, and so are follow-ups that have not succeeded: see [`Erased`].
    ///
    /// # Errors
    /// When the store or the ledger fails. To do it again finishes it.
    pub async fn erase_subject(
        &self,
        tenant: Option<&TenantId>,
        subject: &SubjectId,
        action: &Action,
    ) -> Result<Erased, AuditError> {
        action.check()?;
        let told = |messages| AuditEvent {
            tenant: tenant.cloned(),
            subject: Some(subject.clone()),
            actor: Some(action.actor.clone()),
            messages,
            ..AuditEvent::new(AuditKind::Erased)
        };
        // Before it is so, as everything; and after, since only then it is known how much it was.
        self.sink.append(&[told(None)]).await?;
        let erased = self.courier.store.store().erase_subject(tenant, subject, action).await?;
        self.sink.append(&[told(Some(erased.waiting + erased.dead + erased.archived))]).await?;
        Ok(erased)
    }
}
