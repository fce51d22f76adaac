//! How follow-ups end.
//!
//! A claim ends when its transaction commits, so whoever lands a follow-up holds its group until then: another that lands one of the same
//! group waits, and sees what became of the first.

use super::{
    MemoryStore, Transaction,
    clock::after,
    inbox::Waiting,
    queue::{Queue, Spot},
    rooms::Rooms,
    row::Row,
};
use postrider_core::{
    AuditSink, Error, Follow, Lease, MessageId, Reason,
    follow_up::{Group, Landing},
    saga::{Entry, SagaLog},
    transact::Transact,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// What transactions in which follow-ups end take for themselves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Lock {
    /// Landing one of a group.
    Group(Group),
    /// The log of a saga.
    Saga(MessageId),
}

/// What is done to a follow-up after its claim has ended.
#[derive(Debug)]
pub(super) struct Touch {
    lease: Lease,
    /// It keeps no payload, or has no attempt behind it any more.
    how: fn(&mut Row),
}

impl Rooms {
    pub(super) fn touch(&mut self, touch: &Touch) {
        let Some(queue) = self.queues.get_mut(touch.lease.queue()) else { return };
        if let Some(row) = queue.row_mut(touch.lease.id()) {
            (touch.how)(row);
        }
    }

    /// Whether a group has follow-ups that have not landed, besides this one.
    fn has_others(&self, group: &Group, id: MessageId) -> bool {
        let Some(queue) = self.queues.get(&group.queue) else { return false };
        let dead = queue.dead.values().map(|letter| &letter.row);
        let mut open = queue.ready.values().chain(queue.later.values()).chain(dead);
        open.any(|row| row.id != id && is_of(group, row))
    }
}

fn is_of(group: &Group, row: &Row) -> bool {
    let message = &row.message;
    message.subject() == Some(&group.subject)
        && message.event_type() == Some(&group.operation)
        && message.tenant() == group.tenant.as_ref()
}

impl Queue {
    fn row_mut(&mut self, id: MessageId) -> Option<&mut Row> {
        match self.spot(id)? {
            Spot::Ready(place) => self.ready.get_mut(&place),
            Spot::Later(at, place) => self.later.get_mut(&(at, place)),
            Spot::Dead(at, place) => self.dead.get_mut(&(at, place)).map(|letter| &mut letter.row),
            Spot::Archive(at, place) => self.archive.get_mut(&(at, place)).map(|kept| &mut kept.row),
        }
    }
}

impl MemoryStore {
    /// Locks something, when whoever holds it has ended.
    async fn wait_for(&self, tx: &mut Transaction, lock: &Lock) -> Result<(), Error> {
        loop {
            // Before the look, so that no end in between is missed.
            let ended = self.shared.ended.notified();
            let Err(holder) = tx.take_lock(lock) else { return Ok(()) };
            let _waiting = Waiting::for_end_of(holder, tx.id(), self)?;
            ended.await;
        }
    }
}

impl SagaLog<Transaction> for MemoryStore {
    async fn read_log(&self, tx: &mut Transaction, saga: MessageId) -> Result<Vec<Entry>, Error> {
        tx.check_store(self)?;
        self.wait_for(tx, &Lock::Saga(saga)).await?;
        Ok(tx.log(saga))
    }

    async fn append_log(
        &self,
        tx: &mut Transaction,
        saga: MessageId,
        after: usize,
        entry: &Entry,
    ) -> Result<(), Error> {
        let mut log = tx.log(saga);
        log.truncate(after);
        log.push(entry.clone());
        tx.write_log(saga, log);
        Ok(())
    }

    async fn forget_log(&self, tx: &mut Transaction, saga: MessageId) -> Result<(), Error> {
        tx.write_log(saga, Vec::new());
        Ok(())
    }
}

impl Follow for MemoryStore {
    type Store = Self;

    fn store(&self) -> Self {
        self.clone()
    }

    fn ledger(&self) -> Arc<dyn AuditSink> {
        Arc::new(self.ledger())
    }

    async fn land(&self, tx: &mut Transaction, lease: &Lease, group: &Group) -> Result<Landing, Error> {
        tx.check_store(self)?;
        self.wait_for(tx, &Lock::Group(group.clone())).await?;
        if !self.settle_in(tx, &lease.done()).await? {
            return Ok(Landing::Lost);
        }
        tx.touch(Touch { lease: lease.clone(), how: Row::forget_payload });
        let is_last = !self.lock().has_others(group, lease.id());
        Ok(if is_last { Landing::Last } else { Landing::Open })
    }

    async fn abandon(
        &self,
        tx: &mut Transaction,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> Result<bool, Error> {
        tx.touch(Touch { lease: lease.clone(), how: Row::forget_payload });
        self.settle_in(tx, &lease.dead(reason, error)).await
    }

    async fn schedule(
        &self,
        tx: &mut Transaction,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Option<SystemTime>, Error> {
        let now = self.now();
        let until = not_before.max(after(now, at_least));
        let wait = until.duration_since(now).unwrap_or_default();
        tx.touch(Touch { lease: lease.clone(), how: Row::clear });
        Ok(self.settle_in(tx, &lease.snooze(wait)).await?.then_some(until))
    }
}
