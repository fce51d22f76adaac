//! The uncommitted changes of one transaction to one queue.

use super::{queue::Queue, row::Row, tables::PositionSequence};
use postrider_core::{Message, MessageId, OnConflict, StageOutcome, Timer, TimerName};
use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    time::SystemTime,
};
use uuid::Uuid;

/// Uncommitted changes to one queue. Reads combine them with the committed queue, because a transaction sees its own writes.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueChanges {
    staged: BTreeMap<i64, StagedRow>,
    ids: HashMap<MessageId, i64>,
    timers: HashMap<TimerName, i64>,
    cancelled: HashSet<MessageId>,
    extended: HashMap<MessageId, Row>,
}

/// A staged message.
#[derive(Debug, Clone)]
struct StagedRow {
    row: Row,
    /// The rule if a timer of the same name is active at the time of the commit.
    on_conflict: OnConflict,
}

/// The result for an active timer when another one of its name is staged.
enum Conflict {
    Unchanged,
    Extended(MessageId),
}

impl QueueChanges {
    pub(super) fn stage(
        &mut self,
        queue: &mut Queue,
        message: &Message,
        positions: &mut PositionSequence,
        now: SystemTime,
    ) -> (MessageId, StageOutcome) {
        let id = message.id().unwrap_or_else(|| MessageId::from_uuid(Uuid::now_v7()));
        if self.contains_id(queue, id) {
            return (id, StageOutcome::Duplicate);
        }
        let row = Row::new(message, id, positions.draw(), now);
        if let Some(timer) = message.timer() {
            match self.conflict(queue, timer, &row, now) {
                None => self.timers.insert(timer.name.clone(), row.position),
                Some(Conflict::Unchanged) => return (id, StageOutcome::Ignored),
                Some(Conflict::Extended(active)) => return (active, StageOutcome::Extended),
            };
        }
        let on_conflict = message.timer().map(|timer| timer.on_conflict).unwrap_or_default();
        self.ids.insert(id, row.position);
        self.staged.insert(row.position, StagedRow { row, on_conflict });
        (id, StageOutcome::New)
    }

    /// Cancels a timer, unless it is in flight.
    pub(super) fn cancel(&mut self, queue: &mut Queue, timer: &TimerName, now: SystemTime) -> bool {
        if let Some(staged) = self.timers.remove(timer).and_then(|position| self.staged.remove(&position)) {
            self.ids.remove(&staged.row.id);
            return true;
        }
        let Some(id) = queue.timer(timer).filter(|id| !self.cancelled.contains(id)) else { return false };
        if self.extended.remove(&id).is_none() && (!queue.is_unleased(id, now) || !queue.locked.insert(id)) {
            return false;
        }
        self.cancelled.insert(id)
    }

    /// The committed messages that these changes lock.
    pub(super) fn locks(&self) -> impl Iterator<Item = MessageId> {
        self.cancelled.iter().chain(self.extended.keys()).copied()
    }

    /// Applies the changes at the commit. Returns whether a message may be claimed now.
    pub(super) fn apply(self, queue: &mut Queue, now: SystemTime) -> bool {
        for id in self.locks() {
            queue.locked.remove(&id);
        }
        for id in self.cancelled {
            queue.remove(id, now);
        }
        for (id, row) in self.extended {
            if queue.take(id).is_some() {
                queue.put_scheduled(row);
            }
        }
        let staged = self.staged.into_values();
        staged.fold(false, |runnable, staged| queue.admit(staged.row, staged.on_conflict, now) | runnable)
    }

    fn contains_id(&self, queue: &Queue, id: MessageId) -> bool {
        self.ids.contains_key(&id) || (queue.location(id).is_some() && !self.cancelled.contains(&id))
    }

    /// Resolves the conflict with an active timer of the same name when `row` is staged; `None` if there is none.
    fn conflict(&mut self, queue: &mut Queue, timer: &Timer, row: &Row, now: SystemTime) -> Option<Conflict> {
        let own = self.timers.get(&timer.name).copied();
        let committed = queue.timer(&timer.name).filter(|id| !self.cancelled.contains(id));
        let active = match (own, committed) {
            (None, None) => return None,
            _ if timer.on_conflict == OnConflict::Ignore => None,
            (Some(position), _) => self.staged.get_mut(&position).map(|staged| &mut staged.row),
            (None, Some(id)) => self.extendable(queue, id, now),
        };
        Some(active.map_or(Conflict::Unchanged, |active| {
            active.extend(row);
            Conflict::Extended(active.id)
        }))
    }

    /// A committed timer that can be extended, with the changes of this transaction. It is locked from now on.
    fn extendable(&mut self, queue: &mut Queue, id: MessageId, now: SystemTime) -> Option<&mut Row> {
        match self.extended.entry(id) {
            Entry::Occupied(extended) => Some(extended.into_mut()),
            Entry::Vacant(extended) => {
                let waiting = queue.waiting_row(id, now)?.clone();
                queue.locked.insert(id).then(|| extended.insert(waiting))
            }
        }
    }
}
