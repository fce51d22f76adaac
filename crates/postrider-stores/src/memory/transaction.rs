//! The caller's transaction.

use super::{
    MemoryStore,
    draft::Draft,
    follow::{Lock, Touch},
    inbox::Mark,
    queue::Queue,
    rooms::Rooms,
};
use postrider_core::{
    Admission, Arrival, AuditError, AuditEvent, ConsumerName, Error, Invalid, Message, MessageId, Parked,
    QueueName, ScheduleName, Settle, Staged, TimerName, saga::Entry,
};
use std::{collections::BTreeMap, fmt, mem, time::SystemTime};
use uuid::Uuid;

/// A transaction: what is staged, cancelled and admitted in it happens when it commits, all at once, or never. Dropping it rolls it
/// back. Transactions may overlap and commit in any order.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct Transaction {
    store: MemoryStore,
    drafts: BTreeMap<QueueName, Draft>,
    savepoint: BTreeMap<QueueName, Draft>,
    /// The claims that end with it.
    settles: Vec<Settle>,
    /// What it has admitted, and how much of that before its savepoint.
    marks: Vec<Mark>,
    marks_saved: usize,
    /// What becomes a dead letter with it.
    parked: Vec<Parked>,
    /// What is not counted any more with it.
    uncounted: Vec<Mark>,
    /// What is done to follow-ups after their claims have ended.
    touches: Vec<Touch>,
    /// What it has locked.
    locks: Vec<Lock>,
    /// The logs that it leaves, each whole.
    logs: BTreeMap<MessageId, Vec<Entry>>,
    /// What it records.
    events: Vec<AuditEvent>,
    id: Uuid,
}

impl Transaction {
    pub(super) fn new(store: MemoryStore) -> Self {
        Self {
            store,
            drafts: BTreeMap::new(),
            savepoint: BTreeMap::new(),
            settles: Vec::new(),
            marks: Vec::new(),
            marks_saved: 0,
            parked: Vec::new(),
            uncounted: Vec::new(),
            touches: Vec::new(),
            locks: Vec::new(),
            logs: BTreeMap::new(),
            events: Vec::new(),
            id: Uuid::now_v7(),
        }
    }

    /// Tells it from the others.
    pub(super) fn id(&self) -> Uuid {
        self.id
    }

    /// Makes everything in it happen.
    pub fn commit(mut self) {
        let store = self.store.clone();
        let (mut rooms, now) = store.enter();
        self.make_happen(&mut rooms, now);
    }

    fn make_happen(&mut self, rooms: &mut Rooms, now: SystemTime) {
        for queue in rooms.commit(mem::take(&mut self.drafts), now) {
            self.store.shared.signals.send(queue);
        }
        rooms.park(mem::take(&mut self.parked), now);
        rooms.marks.uncount(&mem::take(&mut self.uncounted));
        for touch in mem::take(&mut self.touches) {
            rooms.touch(&touch);
        }
        for (saga, log) in mem::take(&mut self.logs) {
            if log.is_empty() {
                rooms.sagas.remove(&saga);
            } else {
                rooms.sagas.insert(saga, log);
            }
        }
        rooms.ledger.append(&mem::take(&mut self.events), now);
        let marks = mem::take(&mut self.marks);
        if !marks.is_empty() {
            rooms.marks.keep(marks, now);
            self.store.shared.ended.notify_waiters();
        }
    }

    /// Ends a claim when it commits.
    pub(super) fn settle(&mut self, settle: Settle) {
        self.settles.push(settle);
    }

    /// Does something to a follow-up when it commits, after its claim has ended.
    pub(super) fn touch(&mut self, touch: Touch) {
        self.touches.push(touch);
    }

    /// Locks something until it ends, or answers with the transaction that holds it.
    pub(super) fn take_lock(&mut self, lock: &Lock) -> Result<(), Uuid> {
        let mut rooms = self.store.lock();
        match rooms.locks.get(lock) {
            Some(holder) if *holder != self.id => Err(*holder),
            Some(_) => Ok(()),
            None => {
                rooms.locks.insert(lock.clone(), self.id);
                self.locks.push(lock.clone());
                Ok(())
            }
        }
    }

    /// The log of a saga as it is in this transaction.
    pub(super) fn log(&self, saga: MessageId) -> Vec<Entry> {
        let committed = || self.store.lock().sagas.get(&saga).cloned().unwrap_or_default();
        self.logs.get(&saga).cloned().unwrap_or_else(committed)
    }

    /// Leaves this log of a saga when it commits.
    pub(super) fn write_log(&mut self, saga: MessageId, log: Vec<Entry>) {
        self.logs.insert(saga, log);
    }

    /// Records events when it commits.
    pub(super) fn record(&mut self, events: &[AuditEvent]) -> Result<(), AuditError> {
        self.store.lock().ledger.check(self.events.iter().chain(events))?;
        self.events.extend_from_slice(events);
        Ok(())
    }

    /// Parks messages when it commits.
    pub(super) fn park(&mut self, parked: &[Parked]) {
        self.parked.extend_from_slice(parked);
    }

    /// Forgets counts when it commits.
    pub(super) fn uncount(&mut self, marks: impl IntoIterator<Item = Mark>) {
        self.uncounted.extend(marks);
    }

    /// Makes everything in it happen, unless a claim that ends with it was lost.
    pub(super) fn commit_settled(mut self) -> Result<(), Error> {
        let store = self.store.clone();
        let (mut rooms, now) = store.enter();
        if !rooms.settle(&self.settles, now)?.is_empty() {
            return Err(Error::Unavailable(
                "the message was taken by somebody else before the commit".into(),
            ));
        }
        self.make_happen(&mut rooms, now);
        Ok(())
    }

    /// Makes everything in it happen, and records a tick, unless it or a later one was recorded before.
    pub(super) fn commit_tick(mut self, schedule: &ScheduleName, at: SystemTime) -> bool {
        let store = self.store.clone();
        let (mut rooms, now) = store.enter();
        if rooms.schedules.get(schedule).is_some_and(|last| *last >= at) {
            return false;
        }
        rooms.schedules.insert(schedule.clone(), at);
        self.make_happen(&mut rooms, now);
        true
    }

    /// Makes nothing of it happen.
    pub fn rollback(self) {
        drop(self);
    }

    /// Sets a savepoint; a later one replaces it.
    pub fn savepoint(&mut self) {
        self.savepoint = self.drafts.clone();
        self.marks_saved = self.marks.len();
    }

    /// Undoes what happened in it since its savepoint, or since it began when there is none. The savepoint stays.
    pub fn rollback_to_savepoint(&mut self) {
        let undone = mem::replace(&mut self.drafts, self.savepoint.clone());
        self.unlock(&undone);
        let unmarked = self.marks.split_off(self.marks_saved);
        self.release(&unmarked);
    }

    pub(super) fn check_store(&self, store: &MemoryStore) -> Result<(), Invalid> {
        if self.store.is_same(store) {
            return Ok(());
        }
        Err(Invalid::rule("transaction", "belongs to another store: begin it on the one that stages"))
    }

    pub(super) fn stage_all(&mut self, messages: &[Message]) -> Staged {
        let (mut rooms, now) = self.store.enter();
        let rooms = &mut *rooms;
        let mut fates = Vec::with_capacity(messages.len());
        for message in messages {
            // A queue that nobody used yet begins to exist with the commit.
            let mut unused = Queue::default();
            let queue = rooms.queues.get_mut(message.queue()).unwrap_or(&mut unused);
            let draft = self.drafts.entry(message.queue().clone()).or_default();
            fates.push(draft.stage(queue, message, &mut rooms.line, now));
        }
        Staged::new(fates)
    }

    /// Admits a batch, or answers with the transaction that holds some of it.
    pub(super) fn admit(
        &mut self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Uuid> {
        self.store.lock().marks.admit(self.id, consumer, arrivals, &mut self.marks)
    }

    pub(super) fn cancel_timer(&mut self, queue: &QueueName, timer: &TimerName) -> bool {
        let (mut rooms, now) = self.store.enter();
        if !rooms.queues.contains_key(queue) && !self.drafts.contains_key(queue) {
            return false;
        }
        let mut unused = Queue::default();
        let committed = rooms.queues.get_mut(queue).unwrap_or(&mut unused);
        self.drafts.entry(queue.clone()).or_default().cancel(committed, timer, now)
    }

    /// Lets go of marks.
    fn release(&self, marks: &[Mark]) {
        if !marks.is_empty() {
            self.store.lock().marks.release(marks);
            self.store.shared.ended.notify_waiters();
        }
    }

    /// Gives back what `drafts` locked and what remains does not.
    fn unlock(&self, drafts: &BTreeMap<QueueName, Draft>) {
        if drafts.values().all(|draft| draft.locks().next().is_none()) {
            return;
        }
        let mut rooms = self.store.lock();
        for (name, draft) in drafts {
            let Some(queue) = rooms.queues.get_mut(name) else { continue };
            for id in draft.locks() {
                queue.locked.remove(&id);
            }
            queue.locked.extend(self.drafts.get(name).into_iter().flat_map(Draft::locks));
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let undone = mem::take(&mut self.drafts);
        self.unlock(&undone);
        self.release(&self.marks);
        if !self.locks.is_empty() {
            let mut rooms = self.store.lock();
            for lock in &self.locks {
                rooms.locks.remove(lock);
            }
            drop(rooms);
            self.store.shared.ended.notify_waiters();
        }
    }
}

impl fmt::Debug for Transaction {
    /// Shows no messages: they may carry personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").finish_non_exhaustive()
    }
}
