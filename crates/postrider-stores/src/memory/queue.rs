//! The four rooms of one queue, and the moves between them.

use super::{
    clock::after,
    lanes::Lanes,
    rooms::Line,
    row::{Kept, Letter, Row},
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
    pub(super) later: BTreeMap<(SystemTime, i64), Row>,
    pub(super) dead: BTreeMap<(SystemTime, i64), Letter>,
    pub(super) archive: BTreeMap<(SystemTime, i64), Kept>,
    pub(super) lanes: Lanes,
    /// The places of each tenant in `ready`, where tenants take turns.
    pub(super) tenants: BTreeMap<String, BTreeSet<i64>>,
    pub(super) turns: Turns,
    /// Messages that an open transaction cancels or extends.
    pub(super) locked: HashSet<MessageId>,
    spots: HashMap<MessageId, Spot>,
    timers: HashMap<TimerName, MessageId>,
}

/// Where a message is: its room, and its key there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spot {
    Ready(i64),
    Later(SystemTime, i64),
    Dead(SystemTime, i64),
    Archive(SystemTime, i64),
}

impl Queue {
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self.policy.ordering, Ordering::ByKey(_))
    }

    /// Goes by a policy from now on.
    pub(super) fn govern(&mut self, policy: QueuePolicy) {
        self.policy = policy;
        self.tenants.clear();
        if self.policy.fair_by_tenant {
            for row in self.ready.values() {
                self.tenants.entry(row.tenant().to_owned()).or_default().insert(row.place);
            }
        }
    }

    pub(super) fn spot(&self, id: MessageId) -> Option<Spot> {
        self.spots.get(&id).copied()
    }

    pub(super) fn timer(&self, name: &TimerName) -> Option<MessageId> {
        self.timers.get(name).copied()
    }

    /// The timers that live.
    pub(super) fn timers(&self) -> impl Iterator<Item = (&TimerName, MessageId)> {
        self.timers.iter().map(|(name, id)| (name, *id))
    }

    /// How many messages of its key one of them has before it.
    pub(super) fn ahead(&self, id: MessageId) -> Option<u64> {
        let Spot::Ready(place) = self.spot(id).filter(|_| self.is_ordered())? else { return None };
        let lane = self.lanes.get(&self.ready.get(&place)?.lane)?;
        Some(lane.places.range(..place).count() as u64)
    }

    /// The row of a message that waits in `later`, or did so until it came due and nobody has taken it since.
    pub(super) fn waiting(&self, id: MessageId) -> Option<&Row> {
        match self.spot(id)? {
            Spot::Later(due_at, place) => self.later.get(&(due_at, place)),
            Spot::Ready(place) => self.ready.get(&place).filter(|row| row.ripe),
            Spot::Dead(..) | Spot::Archive(..) => None,
        }
    }

    /// Whether a message is in `ready` or `later`, and in nobody's hands.
    pub(super) fn is_idle(&self, id: MessageId, now: SystemTime) -> bool {
        match self.spot(id) {
            Some(Spot::Later(..)) => true,
            Some(Spot::Ready(place)) => self.ready.get(&place).is_some_and(|row| !self.is_held(row, now)),
            _ => false,
        }
    }

    /// Whether a row of `ready`, or the lane that it is in, is under a live lease.
    fn is_held(&self, row: &Row, now: SystemTime) -> bool {
        if self.is_ordered() {
            self.lanes.get(&row.lane).is_some_and(|lane| lane.is_held(now))
        } else {
            row.is_held(now)
        }
    }

    /// The state of a row of `ready`. A lane shows at its head: of the messages handed out in one turn, the first counts
    /// as leased.
    pub(super) fn state(&self, row: &Row, now: SystemTime) -> State {
        if !self.is_ordered() {
            return if row.is_held(now) { State::Leased } else { State::Pending };
        }
        match self.lanes.get(&row.lane).filter(|lane| lane.head() == Some(row.place)) {
            Some(lane) if lane.is_held(now) => State::Leased,
            Some(lane) if lane.block(now).is_some() => State::Waiting,
            _ => State::Pending,
        }
    }

    pub(super) fn put_ready(&mut self, row: Row) {
        self.spots.insert(row.id, Spot::Ready(row.place));
        if self.is_ordered() {
            self.lanes.add(&row.lane, row.place);
        }
        if self.policy.fair_by_tenant {
            self.tenants.entry(row.tenant().to_owned()).or_default().insert(row.place);
        }
        self.ready.insert(row.place, row);
    }

    pub(super) fn put_later(&mut self, row: Row) {
        self.spots.insert(row.id, Spot::Later(row.due_at, row.place));
        self.later.insert((row.due_at, row.place), row);
    }

    /// Takes a message out of `ready` or `later`. If it is a timer, it still lives.
    pub(super) fn take(&mut self, id: MessageId) -> Option<Row> {
        let row = match self.spot(id)? {
            Spot::Ready(place) => {
                let row = self.ready.remove(&place)?;
                self.lanes.remove(&row.lane, place);
                self.leave_tenant(&row);
                row
            }
            Spot::Later(due_at, place) => self.later.remove(&(due_at, place))?,
            Spot::Dead(..) | Spot::Archive(..) => return None,
        };
        self.spots.remove(&id);
        Some(row)
    }

    fn leave_tenant(&mut self, row: &Row) {
        if let Some(places) = self.tenants.get_mut(row.tenant()) {
            places.remove(&row.place);
            if places.is_empty() {
                self.tenants.remove(row.tenant());
            }
        }
    }

    /// Takes a message out of `ready` or `later` against its will. A lapsed lease on its lane goes with it, so that what
    /// comes next is not blamed for the lapse.
    pub(super) fn evict(&mut self, id: MessageId, now: SystemTime) -> Option<Row> {
        let row = self.take(id)?;
        self.forget_timer(&row);
        if let Some(lane) = self.lanes.get_mut(&row.lane) {
            lane.forgive_lapse(now);
        }
        Some(row)
    }

    /// What a transaction staged comes in at its commit, unless another one was first. Timers always wait in `later`,
    /// where they can be extended and cancelled until somebody claims. Answers whether it may run now.
    pub(super) fn admit(&mut self, row: Row, on_conflict: OnConflict) -> bool {
        if self.spots.contains_key(&row.id) {
            return false;
        }
        let is_due = row.is_due_at_once();
        if let Some(timer) = row.message.timer() {
            if let Some(living) = self.timer(&timer.name) {
                if on_conflict == OnConflict::Extend {
                    self.extend(living, &row);
                }
                return false;
            }
            self.timers.insert(timer.name.clone(), row.id);
            self.put_later(row);
        } else if is_due {
            self.put_ready(row);
        } else {
            self.put_later(row);
        }
        is_due
    }

    fn extend(&mut self, living: MessageId, with: &Row) {
        if self.waiting(living).is_some()
            && !self.locked.contains(&living)
            && let Some(mut row) = self.take(living)
        {
            row.extend(with);
            self.put_later(row);
        }
    }

    /// What has come due takes its place in the line.
    pub(super) fn promote(&mut self, now: SystemTime, line: &mut Line) {
        let due: Vec<_> = self
            .later
            .range(..=(now, i64::MAX))
            .map(|(_, row)| row.id)
            .filter(|id| !self.locked.contains(id))
            .collect();
        for id in due {
            if let Some(mut row) = self.take(id) {
                row.place = line.draw();
                row.ripe = true;
                self.put_ready(row);
            }
        }
    }

    /// A message was delivered. It is kept if the policy says so.
    pub(super) fn finish(&mut self, mut row: Row, now: SystemTime) {
        self.forget_timer(&row);
        if let Some(keep_for) = self.policy.keep_for {
            row.held = None;
            self.spots.insert(row.id, Spot::Archive(now, row.place));
            self.archive
                .insert((now, row.place), Kept { row, done_at: now, expires_at: after(now, keep_for) });
        }
    }

    /// A message failed for good. It is kept unless the policy says otherwise.
    pub(super) fn bury(&mut self, mut row: Row, reason: Reason, now: SystemTime) {
        self.forget_timer(&row);
        if self.policy.dead_letters {
            row.held = None;
            self.spots.insert(row.id, Spot::Dead(now, row.place));
            self.dead.insert((now, row.place), Letter { row, reason, failed_at: now });
        }
    }

    pub(super) fn take_dead(&mut self, id: MessageId) -> Option<Row> {
        let Spot::Dead(at, place) = self.spot(id)? else { return None };
        self.spots.remove(&id);
        self.dead.remove(&(at, place)).map(|letter| letter.row)
    }

    pub(super) fn take_archived(&mut self, id: MessageId) -> Option<Row> {
        let Spot::Archive(at, place) = self.spot(id)? else { return None };
        self.spots.remove(&id);
        self.archive.remove(&(at, place)).map(|kept| kept.row)
    }

    /// The name is free again, unless another timer has taken it since.
    fn forget_timer(&mut self, row: &Row) {
        if let Some(timer) = row.message.timer()
            && self.timer(&timer.name) == Some(row.id)
        {
            self.timers.remove(&timer.name);
        }
    }
}
