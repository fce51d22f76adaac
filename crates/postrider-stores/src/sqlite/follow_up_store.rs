//! Completion of follow-ups, in one transaction with its consequences.
//!
//! One transaction writes at a time, so the lock of a group is the write lock: its holder sees the changes of all others.
//! [`begin`](postrider_core::transactions::Transactions::begin) takes it; any other transaction takes it here, before it reads.

use super::{
    SqliteTransactions,
    drivers::{Driver, DriverRow, first_row},
    ledger, queues,
    timestamp::{self, Micros, after},
};
use crate::template::Template;
use postrider_core::{
    AuditError, AuditEvent, Error, Lease, Reason, TenantId,
    follow_up::{FollowUpGroup, GroupProgress},
    limits::FARTHEST_DUE,
    message::DEFAULT_CONTENT_TYPE,
};
use sqlx::{Sqlite, Transaction};
use std::time::{Duration, SystemTime};

type Tx = Transaction<'static, Sqlite>;

/// Whether a group has follow-ups that have not succeeded, in any state.
pub(super) const GROUP_IS_OPEN: &str = "select exists (select 1 from {ready} m indexed by {ready_subject} \
      where m.subject = ?1 and m.queue = q.id and m.tenant is ?3 and m.event_type = ?4) \
    or exists (select 1 from {scheduled} m indexed by {scheduled_subject} \
      where m.subject = ?1 and m.queue = q.id and m.tenant is ?3 and m.event_type = ?4) \
    or exists (select 1 from {dead} m indexed by {dead_subject} \
      where m.subject = ?1 and m.queue = q.id and m.tenant is ?3 and m.event_type = ?4) \
    from {queue} q where q.name = ?2";

/// Deletes the payload of a follow-up that has ended. A content type shows that there was one.
pub(super) const FORGET: &str = "update {table} set payload = x'', content_type = coalesce(content_type, ?3) \
    where message_id = ?1 and queue = (select q.id from {queue} q where q.name = ?2) and length(payload) > 0";

pub(super) const RESCHEDULE: &str = "update {scheduled} set due_at = ?3, attempts = 0, deliveries = 0, first_failed_at = null, last_error = null \
    where message_id = ?1 and queue = (select q.id from {queue} q where q.name = ?2)";

impl SqliteTransactions {
    pub(super) async fn record(&self, tx: &mut Tx, events: &[AuditEvent]) -> Result<(), AuditError> {
        ledger::record(&mut **tx, &self.store.inner.names, events).await
    }
}

impl SqliteTransactions {
    async fn forget(&self, tx: &mut Tx, table: &Template, lease: &Lease) -> Result<(), Error> {
        let forget = self.store.inner.names.statement(&sql!(FORGET, table));
        let forget =
            forget.bind(lease.id().as_uuid()).bind(lease.queue().as_str()).bind(DEFAULT_CONTENT_TYPE);
        tx.execute(forget).await?;
        Ok(())
    }
}

impl SqliteTransactions {
    pub(super) async fn land(
        &self,
        tx: &mut Tx,
        lease: &Lease,
        group: &FollowUpGroup,
    ) -> Result<GroupProgress, Error> {
        let names = &self.store.inner.names;
        queues::lock(&mut **tx, names).await?;
        if !self.settle_in(tx, &lease.done()).await? {
            return Ok(GroupProgress::Lost);
        }
        self.forget(tx, &sql!("{archive}"), lease).await?;
        let is_open = names
            .statement(&sql!(GROUP_IS_OPEN))
            .bind(group.subject.as_str())
            .bind(group.queue.as_str())
            .bind(group.tenant.as_ref().map(TenantId::as_str))
            .bind(group.operation.as_str());
        let is_open = first_row(&mut **tx, is_open).await?.map(|row| row.get(0)).transpose()?;
        Ok(if is_open == Some(true) { GroupProgress::Open } else { GroupProgress::Last })
    }

    pub(super) async fn abandon(
        &self,
        tx: &mut Tx,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> Result<bool, Error> {
        queues::lock(&mut **tx, &self.store.inner.names).await?;
        let is_ours = self.settle_in(tx, &lease.dead(reason, error)).await?;
        if is_ours {
            self.forget(tx, &sql!("{dead}"), lease).await?;
        }
        Ok(is_ours)
    }

    pub(super) async fn schedule(
        &self,
        tx: &mut Tx,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Option<SystemTime>, Error> {
        let names = &self.store.inner.names;
        let now: Micros = queues::lock(&mut **tx, names).await?;
        if !self.settle_in(tx, &lease.snooze(at_least)).await? {
            return Ok(None);
        }
        let until =
            timestamp::from_system_time(not_before).clamp(after(now, at_least), after(now, FARTHEST_DUE));
        let reschedule =
            names.statement(&sql!(RESCHEDULE)).bind(lease.id().as_uuid()).bind(lease.queue().as_str());
        tx.execute(reschedule.bind(until)).await?;
        Ok(Some(timestamp::to_system_time(until)))
    }
}
