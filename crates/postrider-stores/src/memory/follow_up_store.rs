//! Completion of follow-ups.
//!
//! A settlement takes effect when its transaction commits, so the transaction that completes a follow-up locks its group until then:
//! another one that completes a follow-up of the same group waits, and sees the result of the first.

use super::{
    MemoryStore, MemoryTransaction,
    clock::after,
    inbox::LockWait,
    queue::{Location, Queue},
    row::Row,
    tables::Tables,
};
use postrider_core::{
    Error, Lease, MessageId, Reason, TxBackend as _,
    follow_up::{FollowUpGroup, GroupProgress},
    saga::LogEntry,
};
use std::time::{Duration, SystemTime};

/// The exclusive locks of transactions that complete follow-ups or run sagas.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Lock {
    /// Completion of the follow-ups of a group.
    Group(FollowUpGroup),
    /// The log of a saga.
    Saga(MessageId),
}

/// A change to a follow-up after its settlement.
#[derive(Debug)]
pub(super) struct RowUpdate {
    lease: Lease,
    /// Deletes the payload, or resets the counters.
    apply: fn(&mut Row),
}

impl Tables {
    pub(super) fn update_row(&mut self, update: &RowUpdate) {
        let Some(queue) = self.queues.get_mut(update.lease.queue()) else { return };
        if let Some(row) = queue.row_mut(update.lease.id()) {
            (update.apply)(row);
        }
    }

    /// Whether a group has other follow-ups that have not succeeded.
    fn has_others(&self, group: &FollowUpGroup, id: MessageId) -> bool {
        let Some(queue) = self.queues.get(&group.queue) else { return false };
        let dead = queue.dead.values().map(|letter| &letter.row);
        let mut open = queue.ready.values().chain(queue.scheduled.values()).chain(dead);
        open.any(|row| row.id != id && is_in_group(group, row))
    }
}

fn is_in_group(group: &FollowUpGroup, row: &Row) -> bool {
    let message = &row.message;
    message.subject() == Some(&group.subject)
        && message.event_type() == Some(&group.operation)
        && message.tenant() == group.tenant.as_ref()
}

impl Queue {
    fn row_mut(&mut self, id: MessageId) -> Option<&mut Row> {
        match self.location(id)? {
            Location::Ready(position) => self.ready.get_mut(&position),
            Location::Scheduled(at, position) => self.scheduled.get_mut(&(at, position)),
            Location::Dead(at, position) => self.dead.get_mut(&(at, position)).map(|letter| &mut letter.row),
            Location::Archive(at, position) => {
                self.archive.get_mut(&(at, position)).map(|archived| &mut archived.row)
            }
        }
    }
}

impl MemoryStore {
    /// Takes a lock, after its holder has ended.
    async fn wait_for(&self, tx: &mut MemoryTransaction, lock: &Lock) -> Result<(), Error> {
        loop {
            // Created before the attempt, so that no end in between is missed.
            let ended = self.shared.ended.notified();
            let Err(holder) = tx.take_lock(lock) else { return Ok(()) };
            let _waiting = LockWait::register(holder, tx.id(), self)?;
            ended.await;
        }
    }
}

impl MemoryStore {
    pub(super) async fn read_log(
        &self,
        tx: &mut MemoryTransaction,
        saga: MessageId,
    ) -> Result<Vec<LogEntry>, Error> {
        tx.check_store(self)?;
        self.wait_for(tx, &Lock::Saga(saga)).await?;
        Ok(tx.log(saga))
    }

    pub(super) fn append_log(
        &self,
        tx: &mut MemoryTransaction,
        saga: MessageId,
        after: usize,
        entry: &LogEntry,
    ) -> Result<(), Error> {
        let mut log = tx.log(saga);
        log.truncate(after);
        log.push(entry.clone());
        tx.write_log(saga, log);
        Ok(())
    }

    pub(super) fn forget_log(&self, tx: &mut MemoryTransaction, saga: MessageId) -> Result<(), Error> {
        tx.write_log(saga, Vec::new());
        Ok(())
    }
}

impl MemoryStore {
    pub(super) async fn land(
        &self,
        tx: &mut MemoryTransaction,
        lease: &Lease,
        group: &FollowUpGroup,
    ) -> Result<GroupProgress, Error> {
        tx.check_store(self)?;
        self.wait_for(tx, &Lock::Group(group.clone())).await?;
        if !self.settle_in(tx, &lease.done()).await? {
            return Ok(GroupProgress::Lost);
        }
        tx.update_row(RowUpdate { lease: lease.clone(), apply: Row::forget_payload });
        let is_last = !self.lock().has_others(group, lease.id());
        Ok(if is_last { GroupProgress::Last } else { GroupProgress::Open })
    }

    pub(super) async fn abandon(
        &self,
        tx: &mut MemoryTransaction,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> Result<bool, Error> {
        tx.update_row(RowUpdate { lease: lease.clone(), apply: Row::forget_payload });
        self.settle_in(tx, &lease.dead(reason, error)).await
    }

    pub(super) async fn schedule(
        &self,
        tx: &mut MemoryTransaction,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Option<SystemTime>, Error> {
        let now = self.now();
        let until = not_before.max(after(now, at_least));
        let wait = until.duration_since(now).unwrap_or_default();
        tx.update_row(RowUpdate { lease: lease.clone(), apply: Row::clear });
        Ok(self.settle_in(tx, &lease.snooze(wait)).await?.then_some(until))
    }
}
