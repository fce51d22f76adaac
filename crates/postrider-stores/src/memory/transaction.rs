//! The transaction of the memory store.

use super::{
    MemoryStore,
    changes::QueueChanges,
    follow_up_store::{Lock, RowUpdate},
    inbox::DeduplicationKey,
    queue::Queue,
    tables::Tables,
};
use postrider_core::{
    Admission, Arrival, AuditError, AuditEvent, ConsumerName, DeadLetter, Error, Invalid, LeaseSettlement,
    Message, MessageId, QueueName, ScheduleName, StageReport, TimerName, saga::LogEntry,
};
use std::{collections::BTreeMap, fmt, mem, time::SystemTime};
use uuid::Uuid;

/// A transaction: its staged messages, cancelled timers and admitted messages take effect together when it commits, or not at all.
/// Dropping it rolls it back. Transactions may overlap and commit in any order.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct MemoryTransaction {
    store: MemoryStore,
    changes: BTreeMap<QueueName, QueueChanges>,
    savepoint: BTreeMap<QueueName, QueueChanges>,
    /// The settlements to apply at the commit.
    settlements: Vec<LeaseSettlement>,
    /// The admitted messages, and how many of them were admitted before the savepoint.
    admitted: Vec<DeduplicationKey>,
    admitted_before_savepoint: usize,
    /// The dead letters to write at the commit.
    dead_letters: Vec<DeadLetter>,
    /// The delivery counts to delete at the commit.
    uncounted: Vec<DeduplicationKey>,
    /// The changes to follow-ups after their settlement.
    row_updates: Vec<RowUpdate>,
    /// The locks that it holds.
    locks: Vec<Lock>,
    /// The saga logs to write at the commit, each as a whole.
    logs: BTreeMap<MessageId, Vec<LogEntry>>,
    /// The audit events to append at the commit.
    events: Vec<AuditEvent>,
    id: Uuid,
}

impl MemoryTransaction {
    pub(super) fn new(store: MemoryStore) -> Self {
        Self {
            store,
            changes: BTreeMap::new(),
            savepoint: BTreeMap::new(),
            settlements: Vec::new(),
            admitted: Vec::new(),
            admitted_before_savepoint: 0,
            dead_letters: Vec::new(),
            uncounted: Vec::new(),
            row_updates: Vec::new(),
            locks: Vec::new(),
            logs: BTreeMap::new(),
            events: Vec::new(),
            id: Uuid::now_v7(),
        }
    }

    /// The identity of this transaction.
    pub(super) fn id(&self) -> Uuid {
        self.id
    }

    /// Commits the transaction.
    pub fn commit(mut self) {
        let store = self.store.clone();
        let (mut tables, now) = store.enter();
        self.apply(&mut tables, now);
    }

    fn apply(&mut self, tables: &mut Tables, now: SystemTime) {
        for queue in tables.commit(mem::take(&mut self.changes), now) {
            self.store.shared.signals.send(queue);
        }
        tables.dead_letter(mem::take(&mut self.dead_letters), now);
        tables.inbox.uncount(&mem::take(&mut self.uncounted));
        for update in mem::take(&mut self.row_updates) {
            tables.update_row(&update);
        }
        for (saga, log) in mem::take(&mut self.logs) {
            if log.is_empty() {
                tables.sagas.remove(&saga);
            } else {
                tables.sagas.insert(saga, log);
            }
        }
        tables.ledger.append(&mem::take(&mut self.events), now);
        let admitted = mem::take(&mut self.admitted);
        if !admitted.is_empty() {
            tables.inbox.keep(admitted, now);
            self.store.shared.ended.notify_waiters();
        }
    }

    /// Settles a message at the commit.
    pub(super) fn settle(&mut self, settle: LeaseSettlement) {
        self.settlements.push(settle);
    }

    /// Changes a follow-up at the commit, after its settlement.
    pub(super) fn update_row(&mut self, update: RowUpdate) {
        self.row_updates.push(update);
    }

    /// Takes a lock until the transaction ends, or returns the transaction that holds it.
    pub(super) fn take_lock(&mut self, lock: &Lock) -> Result<(), Uuid> {
        let mut tables = self.store.lock();
        match tables.locks.get(lock) {
            Some(holder) if *holder != self.id => Err(*holder),
            Some(_) => Ok(()),
            None => {
                tables.locks.insert(lock.clone(), self.id);
                self.locks.push(lock.clone());
                Ok(())
            }
        }
    }

    /// The log of a saga as this transaction sees it.
    pub(super) fn log(&self, saga: MessageId) -> Vec<LogEntry> {
        let committed = || self.store.lock().sagas.get(&saga).cloned().unwrap_or_default();
        self.logs.get(&saga).cloned().unwrap_or_else(committed)
    }

    /// Replaces the log of a saga at the commit.
    pub(super) fn write_log(&mut self, saga: MessageId, log: Vec<LogEntry>) {
        self.logs.insert(saga, log);
    }

    /// Appends audit events at the commit.
    pub(super) fn record(&mut self, events: &[AuditEvent]) -> Result<(), AuditError> {
        self.store.lock().ledger.check(self.events.iter().chain(events))?;
        self.events.extend_from_slice(events);
        Ok(())
    }

    /// Writes dead letters at the commit.
    pub(super) fn dead_letter(&mut self, dead_letters: &[DeadLetter]) {
        self.dead_letters.extend_from_slice(dead_letters);
    }

    /// Deletes delivery counts at the commit.
    pub(super) fn uncount(&mut self, admitted: impl IntoIterator<Item = DeduplicationKey>) {
        self.uncounted.extend(admitted);
    }

    /// Commits the transaction, unless the lease of one of its settlements was lost.
    pub(super) fn commit_settled(mut self) -> Result<(), Error> {
        let store = self.store.clone();
        let (mut tables, now) = store.enter();
        if !tables.settle(&self.settlements, now)?.is_empty() {
            return Err(Error::Unavailable(
                "the lease was lost before the commit: another worker has claimed the message".into(),
            ));
        }
        self.apply(&mut tables, now);
        Ok(())
    }

    /// Commits the transaction and records a tick, unless this tick or a later one was recorded before.
    pub(super) fn commit_tick(mut self, schedule: &ScheduleName, at: SystemTime) -> bool {
        let store = self.store.clone();
        let (mut tables, now) = store.enter();
        if tables.schedules.get(schedule).is_some_and(|last| *last >= at) {
            return false;
        }
        tables.schedules.insert(schedule.clone(), at);
        self.apply(&mut tables, now);
        true
    }

    /// Rolls the transaction back.
    pub fn rollback(self) {
        drop(self);
    }

    /// Sets a savepoint, which replaces an earlier one.
    pub fn savepoint(&mut self) {
        self.savepoint = self.changes.clone();
        self.admitted_before_savepoint = self.admitted.len();
    }

    /// Rolls back to the savepoint, or to the beginning if there is none. The savepoint stays.
    pub fn rollback_to_savepoint(&mut self) {
        let undone = mem::replace(&mut self.changes, self.savepoint.clone());
        self.unlock(&undone);
        let released = self.admitted.split_off(self.admitted_before_savepoint);
        self.release(&released);
    }

    pub(super) fn check_store(&self, store: &MemoryStore) -> Result<(), Invalid> {
        if self.store.is_same(store) {
            return Ok(());
        }
        Err(Invalid::rule("transaction", "belongs to another store: begin it on the store that stages"))
    }

    pub(super) fn stage_all(&mut self, messages: &[Message]) -> StageReport {
        let (mut tables, now) = self.store.enter();
        let tables = &mut *tables;
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            // The commit creates a queue that does not exist yet.
            let mut unused = Queue::default();
            let queue = tables.queues.get_mut(message.queue()).unwrap_or(&mut unused);
            let changes = self.changes.entry(message.queue().clone()).or_default();
            outcomes.push(changes.stage(queue, message, &mut tables.positions, now));
        }
        StageReport::new(outcomes)
    }

    /// Admits a batch, or returns the transaction that has locked one of its messages.
    pub(super) fn admit(
        &mut self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Uuid> {
        self.store.lock().inbox.admit(self.id, consumer, arrivals, &mut self.admitted)
    }

    pub(super) fn cancel_timer(&mut self, queue: &QueueName, timer: &TimerName) -> bool {
        let (mut tables, now) = self.store.enter();
        if !tables.queues.contains_key(queue) && !self.changes.contains_key(queue) {
            return false;
        }
        let mut unused = Queue::default();
        let committed = tables.queues.get_mut(queue).unwrap_or(&mut unused);
        self.changes.entry(queue.clone()).or_default().cancel(committed, timer, now)
    }

    /// Unlocks admitted messages.
    fn release(&self, admitted: &[DeduplicationKey]) {
        if !admitted.is_empty() {
            self.store.lock().inbox.release(admitted);
            self.store.shared.ended.notify_waiters();
        }
    }

    /// Unlocks the timers that `changes` locked, except those that the remaining changes lock.
    fn unlock(&self, changes: &BTreeMap<QueueName, QueueChanges>) {
        if changes.values().all(|changes| changes.locks().next().is_none()) {
            return;
        }
        let mut tables = self.store.lock();
        for (name, queue_changes) in changes {
            let Some(queue) = tables.queues.get_mut(name) else { continue };
            for id in queue_changes.locks() {
                queue.locked.remove(&id);
            }
            queue.locked.extend(self.changes.get(name).into_iter().flat_map(QueueChanges::locks));
        }
    }
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        let undone = mem::take(&mut self.changes);
        self.unlock(&undone);
        self.release(&self.admitted);
        if !self.locks.is_empty() {
            let mut tables = self.store.lock();
            for lock in &self.locks {
                tables.locks.remove(lock);
            }
            drop(tables);
            self.store.shared.ended.notify_waiters();
        }
    }
}

impl fmt::Debug for MemoryTransaction {
    /// Shows no messages: they may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransaction").finish_non_exhaustive()
    }
}
