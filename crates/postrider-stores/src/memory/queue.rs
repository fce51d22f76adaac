//! The four tables of one queue, and the moves between them.

use super::{
    clock::after,
    lanes::Lanes,
    row::{ArchivedRow, DeadRow, Row},
    tables::PositionSequence,
};
use crate::turns::Turns;
use postrider_core::{MessageId, OnConflict, Ordering, QueuePolicy, Reason, State, TimerName};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::SystemTime,
};

#[derive(Debug, Default)]
pub(super) struct Queue {
    pub(super) policy: QueuePolicy,
    pub(super) ready: BTreeMap<i64, Row>,
    pub(super) scheduled: BTreeMap<(SystemTime, i64), Row>,
    pub(super) dead: BTreeMap<(SystemTime, i64), DeadRow>,
    pub(super) archive: BTreeMap<(SystemTime, i64), ArchivedRow>,
    pub(super) lanes: Lanes,
    /// The positions of each tenant in `ready`, if tenants take turns.
    pub(super) tenants: BTreeMap<String, BTreeSet<i64>>,
    pub(super) turns: Turns,
    /// Messages that an open transaction cancels or extends.
    pub(super) locked: HashSet<MessageId>,
    locations: HashMap<MessageId, Location>,
    timers: HashMap<TimerName, MessageId>,
}

/// The location of a message: its table, and its key there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Location {
    Ready(i64),
    Scheduled(SystemTime, i64),
    Dead(SystemTime, i64),
    Archive(SystemTime, i64),
}

impl Queue {
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self.policy.ordering, Ordering::ByKey(_))
    }

    /// Sets the policy.
    pub(super) fn set_policy(&mut self, policy: QueuePolicy) {
        self.policy = policy;
        self.tenants.clear();
        if self.policy.fair_by_tenant {
            for row in self.ready.values() {
                self.tenants.entry(row.tenant().to_owned()).or_default().insert(row.position);
            }
        }
    }

    pub(super) fn location(&self, id: MessageId) -> Option<Location> {
        self.locations.get(&id).copied()
    }

    pub(super) fn timer(&self, name: &TimerName) -> Option<MessageId> {
        self.timers.get(name).copied()
    }

    /// The active timers.
    pub(super) fn timers(&self) -> impl Iterator<Item = (&TimerName, MessageId)> {
        self.timers.iter().map(|(name, id)| (name, *id))
    }

    /// The number of messages of the same key ahead of a message.
    pub(super) fn ahead(&self, id: MessageId) -> Option<u64> {
        let Location::Ready(position) = self.location(id).filter(|_| self.is_ordered())? else { return None };
        let lane = self.lanes.get(&self.ready.get(&position)?.lane)?;
        Some(lane.positions.range(..position).count() as u64)
    }

    /// The row of a message that is scheduled, or is due and free. In an ordered queue a message may be delivered at any moment once it
    /// was claimed, since the lease is that of its key.
    pub(super) fn waiting_row(&self, id: MessageId, now: SystemTime) -> Option<&Row> {
        match self.location(id)? {
            Location::Scheduled(due_at, position) => self.scheduled.get(&(due_at, position)),
            Location::Ready(position) => {
                let is_free = |row: &Row| row.promoted || (!self.is_ordered() && !row.is_leased(now));
                self.ready.get(&position).filter(|row| is_free(row))
            }
            Location::Dead(..) | Location::Archive(..) => None,
        }
    }

    /// Whether a message is in `ready` or `scheduled`, and not leased.
    pub(super) fn is_unleased(&self, id: MessageId, now: SystemTime) -> bool {
        match self.location(id) {
            Some(Location::Scheduled(..)) => true,
            Some(Location::Ready(position)) => {
                self.ready.get(&position).is_some_and(|row| !self.is_leased(row, now))
            }
            _ => false,
        }
    }

    /// Whether a row of `ready`, or its lane, has a lease that has not expired.
    fn is_leased(&self, row: &Row, now: SystemTime) -> bool {
        if self.is_ordered() {
            self.lanes.get(&row.lane).is_some_and(|lane| lane.is_leased(now))
        } else {
            row.is_leased(now)
        }
    }

    /// The state of a row of `ready`. The head of a lane shows its status: of the messages claimed in one turn, the first counts
    /// as leased.
    pub(super) fn state(&self, row: &Row, now: SystemTime) -> State {
        if !self.is_ordered() {
            return if row.is_leased(now) { State::Leased } else { State::Pending };
        }
        match self.lanes.get(&row.lane).filter(|lane| lane.head() == Some(row.position)) {
            Some(lane) if lane.is_leased(now) => State::Leased,
            Some(lane) if lane.block(now).is_some() => State::Scheduled,
            _ => State::Pending,
        }
    }

    pub(super) fn put_ready(&mut self, row: Row) {
        self.locations.insert(row.id, Location::Ready(row.position));
        if self.is_ordered() {
            self.lanes.add(&row.lane, row.position);
        }
        if self.policy.fair_by_tenant {
            self.tenants.entry(row.tenant().to_owned()).or_default().insert(row.position);
        }
        self.ready.insert(row.position, row);
    }

    pub(super) fn put_scheduled(&mut self, row: Row) {
        self.locations.insert(row.id, Location::Scheduled(row.due_at, row.position));
        self.scheduled.insert((row.due_at, row.position), row);
    }

    /// Takes a message out of `ready` or `scheduled`. The name of its timer stays taken.
    pub(super) fn take(&mut self, id: MessageId) -> Option<Row> {
        let row = match self.location(id)? {
            Location::Ready(position) => {
                let row = self.ready.remove(&position)?;
                self.lanes.remove(&row.lane, position);
                self.leave_tenant(&row);
                row
            }
            Location::Scheduled(due_at, position) => self.scheduled.remove(&(due_at, position))?,
            Location::Dead(..) | Location::Archive(..) => return None,
        };
        self.locations.remove(&id);
        Some(row)
    }

    fn leave_tenant(&mut self, row: &Row) {
        if let Some(positions) = self.tenants.get_mut(row.tenant()) {
            positions.remove(&row.position);
            if positions.is_empty() {
                self.tenants.remove(row.tenant());
            }
        }
    }

    /// Removes a message from `ready` or `scheduled`, with its timer. An expired lease on its lane is cleared, so that it does not
    /// count against the next message.
    pub(super) fn remove(&mut self, id: MessageId, now: SystemTime) -> Option<Row> {
        let row = self.take(id)?;
        self.forget_timer(&row);
        if let Some(lane) = self.lanes.get_mut(&row.lane) {
            lane.clear_expired_lease(now);
        }
        Some(row)
    }

    /// Inserts a staged message at the commit of its transaction, unless another transaction was first. Timers always go to
    /// `scheduled`, where they can be extended and cancelled until they are claimed. Returns whether the message is due now.
    pub(super) fn admit(&mut self, row: Row, on_conflict: OnConflict, now: SystemTime) -> bool {
        if self.locations.contains_key(&row.id) {
            return false;
        }
        let is_due = row.is_due_now();
        if let Some(timer) = row.message.timer() {
            if let Some(active) = self.timer(&timer.name) {
                if on_conflict == OnConflict::Extend {
                    self.extend(active, &row, now);
                }
                return false;
            }
            self.timers.insert(timer.name.clone(), row.id);
            self.put_scheduled(row);
        } else if is_due {
            self.put_ready(row);
        } else {
            self.put_scheduled(row);
        }
        is_due
    }

    fn extend(&mut self, active: MessageId, with: &Row, now: SystemTime) {
        if self.waiting_row(active, now).is_some()
            && !self.locked.contains(&active)
            && let Some(mut row) = self.take(active)
        {
            row.extend(with);
            self.put_scheduled(row);
        }
    }

    /// Moves scheduled messages that are due to the end of `ready`.
    pub(super) fn promote(&mut self, now: SystemTime, positions: &mut PositionSequence) {
        let due: Vec<_> = self
            .scheduled
            .range(..=(now, i64::MAX))
            .map(|(_, row)| row.id)
            .filter(|id| !self.locked.contains(id))
            .collect();
        for id in due {
            if let Some(mut row) = self.take(id) {
                row.position = positions.draw();
                row.promoted = true;
                self.put_ready(row);
            }
        }
    }

    /// Completes a delivered message. It is archived if the policy says so.
    pub(super) fn finish(&mut self, mut row: Row, now: SystemTime) {
        self.forget_timer(&row);
        if let Some(keep_for) = self.policy.keep_for {
            row.lease = None;
            self.locations.insert(row.id, Location::Archive(now, row.position));
            self.archive.insert(
                (now, row.position),
                ArchivedRow { row, done_at: now, expires_at: after(now, keep_for) },
            );
        }
    }

    /// Stores a message that failed permanently as a dead letter, unless the policy says otherwise.
    pub(super) fn put_dead(&mut self, mut row: Row, reason: Reason, now: SystemTime) {
        self.forget_timer(&row);
        if self.policy.dead_letters {
            row.lease = None;
            self.locations.insert(row.id, Location::Dead(now, row.position));
            self.dead.insert((now, row.position), DeadRow { row, reason, failed_at: now });
        }
    }

    pub(super) fn take_dead(&mut self, id: MessageId) -> Option<Row> {
        let Location::Dead(at, position) = self.location(id)? else { return None };
        self.locations.remove(&id);
        self.dead.remove(&(at, position)).map(|letter| letter.row)
    }

    pub(super) fn take_archived(&mut self, id: MessageId) -> Option<Row> {
        let Location::Archive(at, position) = self.location(id)? else { return None };
        self.locations.remove(&id);
        self.archive.remove(&(at, position)).map(|archived| archived.row)
    }

    /// Frees the name of a timer, unless another timer has taken it in the meantime.
    fn forget_timer(&mut self, row: &Row) {
        if let Some(timer) = row.message.timer()
            && self.timer(&timer.name) == Some(row.id)
        {
            self.timers.remove(&timer.name);
        }
    }
}
