//! What one open transaction will change in one queue.

use super::{queue::Queue, rooms::Line, row::Row};
use postrider_core::{Fate, Message, MessageId, OnConflict, Timer, TimerName};
use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    time::SystemTime,
};
use uuid::Uuid;

/// Changes to one queue that are not committed. Reads go through it to the committed queue, as a transaction sees its own
/// writes.
#[derive(Debug, Clone, Default)]
pub(super) struct Draft {
    fresh: BTreeMap<i64, Fresh>,
    ids: HashMap<MessageId, i64>,
    timers: HashMap<TimerName, i64>,
    cancelled: HashSet<MessageId>,
    extended: HashMap<MessageId, Row>,
}

/// A message that is staged.
#[derive(Debug, Clone)]
struct Fresh {
    row: Row,
    /// What happens when, by the time of the commit, a timer of its name lives.
    on_conflict: OnConflict,
}

/// What becomes of a living timer when another of its name is staged.
enum Conflict {
    Stays,
    Extended(MessageId),
}

impl Draft {
    pub(super) fn stage(
        &mut self,
        queue: &mut Queue,
        message: &Message,
        line: &mut Line,
        now: SystemTime,
    ) -> (MessageId, Fate) {
        let id = message.id().unwrap_or_else(|| MessageId::from_uuid(Uuid::now_v7()));
        if self.knows(queue, id) {
            return (id, Fate::Duplicate);
        }
        let row = Row::new(message, id, line.draw(), now);
        if let Some(timer) = message.timer() {
            match self.conflict(queue, timer, &row) {
                None => self.timers.insert(timer.name.clone(), row.place),
                Some(Conflict::Stays) => return (id, Fate::Ignored),
                Some(Conflict::Extended(living)) => return (living, Fate::Extended),
            };
        }
        let on_conflict = message.timer().map(|timer| timer.on_conflict).unwrap_or_default();
        self.ids.insert(id, row.place);
        self.fresh.insert(row.place, Fresh { row, on_conflict });
        (id, Fate::New)
    }

    /// Cancels a timer, unless it is being delivered.
    pub(super) fn cancel(&mut self, queue: &mut Queue, timer: &TimerName, now: SystemTime) -> bool {
        if let Some(fresh) = self.timers.remove(timer).and_then(|place| self.fresh.remove(&place)) {
            self.ids.remove(&fresh.row.id);
            return true;
        }
        let Some(id) = queue.timer(timer).filter(|id| !self.cancelled.contains(id)) else { return false };
        if self.extended.remove(&id).is_none() && (!queue.is_idle(id, now) || !queue.locked.insert(id)) {
            return false;
        }
        self.cancelled.insert(id)
    }

    /// The messages of the committed queue that it locks.
    pub(super) fn locks(&self) -> impl Iterator<Item = MessageId> {
        self.cancelled.iter().chain(self.extended.keys()).copied()
    }

    /// Commits it. Answers whether something may run now.
    pub(super) fn apply(self, queue: &mut Queue, now: SystemTime) -> bool {
        for id in self.locks() {
            queue.locked.remove(&id);
        }
        for id in self.cancelled {
            queue.evict(id, now);
        }
        for (id, row) in self.extended {
            if queue.take(id).is_some() {
                queue.put_later(row);
            }
        }
        let fresh = self.fresh.into_values();
        fresh.fold(false, |runnable, fresh| queue.admit(fresh.row, fresh.on_conflict) | runnable)
    }

    fn knows(&self, queue: &Queue, id: MessageId) -> bool {
        self.ids.contains_key(&id) || (queue.spot(id).is_some() && !self.cancelled.contains(&id))
    }

    /// What becomes of a living timer of the same name, when `row` is staged.
    fn conflict(&mut self, queue: &mut Queue, timer: &Timer, row: &Row) -> Option<Conflict> {
        let own = self.timers.get(&timer.name).copied();
        let committed = queue.timer(&timer.name).filter(|id| !self.cancelled.contains(id));
        let living = match (own, committed) {
            (None, None) => return None,
            _ if timer.on_conflict == OnConflict::Ignore => None,
            (Some(place), _) => self.fresh.get_mut(&place).map(|fresh| &mut fresh.row),
            (None, Some(id)) => self.extendable(queue, id),
        };
        Some(living.map_or(Conflict::Stays, |living| {
            living.extend(row);
            Conflict::Extended(living.id)
        }))
    }

    /// A committed timer that waits, as this transaction will leave it. It is locked from now on.
    fn extendable(&mut self, queue: &mut Queue, id: MessageId) -> Option<&mut Row> {
        match self.extended.entry(id) {
            Entry::Occupied(extended) => Some(extended.into_mut()),
            Entry::Vacant(extended) => {
                let waiting = queue.waiting(id)?.clone();
                queue.locked.insert(id).then(|| extended.insert(waiting))
            }
        }
    }
}
