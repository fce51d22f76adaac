//! How follow-ups end: in a transaction, together with what that calls for.
//!
//! One transaction writes at a time, so the lock of a group is the write lock: whoever holds it sees what all others have done.
//! [`begin`](postrider_core::transact::Transact::begin) takes it; a transaction that was begun otherwise takes it here, before it looks.

use super::{
    SqliteStore, SqliteTransactions,
    drivers::{Cells, Driver, first},
    ledger,
    moment::{self, Micros, after},
    queues,
};
use postrider_core::{
    Audit, AuditError, AuditEvent, AuditSink, Error, Follow, Lease, Message, Outbox, QueueName, Reason,
    Staged, TenantId, TimerName,
    follow_up::{Group, Landing},
    limits::FARTHEST_DUE,
    message::DEFAULT_CONTENT_TYPE,
    transact::Transact,
};
use sqlx::{Sqlite, Transaction};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

type Tx = Transaction<'static, Sqlite>;

/// Whether anything of a group is left, in whatever state.
pub(super) const LEFT: &str = "select exists (select 1 from {ready} m indexed by {ready_subject} \
      where m.subject = ?1 and m.queue = q.id and m.tenant is ?3 and m.event_type = ?4) \
    or exists (select 1 from {later} m indexed by {later_subject} \
      where m.subject = ?1 and m.queue = q.id and m.tenant is ?3 and m.event_type = ?4) \
    or exists (select 1 from {dead} m indexed by {dead_subject} \
      where m.subject = ?1 and m.queue = q.id and m.tenant is ?3 and m.event_type = ?4) \
    from {queue} q where q.name = ?2";

/// What has ended keeps no payload; that it names a content type tells that there was one.
pub(super) fn forget_template(room: &str) -> String {
    format!(
        "update {room} set payload = x'', content_type = coalesce(content_type, ?3) \
         where message_id = ?1 and queue = (select q.id from {{queue}} q where q.name = ?2) and length(payload) > 0"
    )
}

pub(super) const PUT_OFF: &str = "update {later} set due_at = ?3, attempts = 0, deliveries = 0, last_error = null \
    where message_id = ?1 and queue = (select q.id from {queue} q where q.name = ?2)";

impl Outbox<Tx> for SqliteTransactions {
    async fn stage_all(&self, tx: &mut Tx, messages: &[Message]) -> Result<Staged, Error> {
        self.store.outbox().stage_all(tx, messages).await
    }

    async fn cancel_timer(&self, tx: &mut Tx, queue: &QueueName, timer: &TimerName) -> Result<bool, Error> {
        self.store.outbox().cancel_timer(tx, queue, timer).await
    }
}

impl Audit<Tx> for SqliteTransactions {
    async fn record(&self, tx: &mut Tx, events: &[AuditEvent]) -> Result<(), AuditError> {
        ledger::record(&mut **tx, &self.store.inner.names, events).await
    }
}

impl SqliteTransactions {
    async fn forget(&self, tx: &mut Tx, room: &str, lease: &Lease) -> Result<(), Error> {
        let forget = self.store.inner.names.statement(&forget_template(room));
        let forget =
            forget.bind(lease.id().as_uuid()).bind(lease.queue().as_str()).bind(DEFAULT_CONTENT_TYPE);
        tx.execute(forget).await?;
        Ok(())
    }
}

impl Follow for SqliteTransactions {
    type Store = SqliteStore;

    fn store(&self) -> SqliteStore {
        self.store.clone()
    }

    fn ledger(&self) -> Arc<dyn AuditSink> {
        Arc::new(self.store.ledger())
    }

    async fn land(&self, tx: &mut Tx, lease: &Lease, group: &Group) -> Result<Landing, Error> {
        let names = &self.store.inner.names;
        queues::lock(&mut **tx, names).await?;
        if !self.settle_in(tx, &lease.done()).await? {
            return Ok(Landing::Lost);
        }
        self.forget(tx, "{archive}", lease).await?;
        let left = names
            .statement(LEFT)
            .bind(group.subject.as_str())
            .bind(group.queue.as_str())
            .bind(group.tenant.as_ref().map(TenantId::as_str))
            .bind(group.operation.as_str());
        let left = first(&mut **tx, left).await?.map(|row| row.get(0)).transpose()?;
        Ok(if left == Some(true) { Landing::Open } else { Landing::Last })
    }

    async fn abandon(&self, tx: &mut Tx, lease: &Lease, reason: Reason, error: &str) -> Result<bool, Error> {
        queues::lock(&mut **tx, &self.store.inner.names).await?;
        let is_ours = self.settle_in(tx, &lease.dead(reason, error)).await?;
        if is_ours {
            self.forget(tx, "{dead}", lease).await?;
        }
        Ok(is_ours)
    }

    async fn schedule(
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
        let until = moment::of(not_before).clamp(after(now, at_least), after(now, FARTHEST_DUE));
        let put_off = names.statement(PUT_OFF).bind(lease.id().as_uuid()).bind(lease.queue().as_str());
        tx.execute(put_off.bind(until)).await?;
        Ok(Some(moment::time(until)))
    }
}
