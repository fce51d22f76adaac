//! The lanes of a queue that is ordered by key: the key is leased, not the message.
//!
//! A lane lives as long as its key has messages in `ready`. It is *free*, *leased* or *blocked*; a lapsed lease and a
//! blocked lane that has come due are as good as free. The lane alone says whether a key may run, so messages neither move nor
//! change when their head fails, and nothing can overtake it.
//!
//! Turns are fair because lanes form a ring: a lane that ends its turn goes to the tail. Tail and places are
//! drawn from one sequence, so that keys and unordered messages can be compared by who has waited longest.
//!
//! A worker that dies leaves nothing but a lapsed lease. It is counted on the lane (`lapses`), and while there are any, the head
//! is handed out alone: the message that kills workers is found, and its neighbours are not blamed.

use super::row::Held;
use postrider_core::{OrderingKey, Reason};
use std::{
    collections::{BTreeSet, HashMap},
    time::SystemTime,
};

#[derive(Debug, Default)]
pub(super) struct Lanes {
    lanes: HashMap<OrderingKey, Lane>,
    ring: BTreeSet<(i64, OrderingKey)>,
}

#[derive(Debug)]
pub(super) struct Lane {
    turn_at: i64,
    pub(super) places: BTreeSet<i64>,
    pub(super) run: Run,
    pub(super) lapses: u32,
}

/// Whether a key may run.
#[derive(Debug)]
pub(super) enum Run {
    Free,
    Leased(Held),
    Blocked(Block),
}

/// Why and until when a key does not run.
#[derive(Debug)]
pub(super) struct Block {
    /// When it runs again by itself; `None` when it is parked.
    pub(super) due_at: Option<SystemTime>,
    pub(super) reason: Option<Reason>,
    pub(super) error: Option<String>,
}

impl Block {
    pub(super) fn holds(&self, now: SystemTime) -> bool {
        self.due_at.is_none_or(|due_at| due_at > now)
    }
}

impl Lane {
    pub(super) fn head(&self) -> Option<i64> {
        self.places.first().copied()
    }

    pub(super) fn is_held(&self, now: SystemTime) -> bool {
        matches!(&self.run, Run::Leased(held) if held.is_live(now))
    }

    pub(super) fn block(&self, now: SystemTime) -> Option<&Block> {
        match &self.run {
            Run::Blocked(block) if block.holds(now) => Some(block),
            _ => None,
        }
    }

    fn may_run(&self, now: SystemTime) -> bool {
        !self.is_held(now) && self.block(now).is_none()
    }

    /// Begins a turn; a lease that nobody ended is counted.
    pub(super) fn lease(&mut self, held: Held) {
        if let Run::Leased(_) = self.run {
            self.lapses = self.lapses.saturating_add(1);
        }
        self.run = Run::Leased(held);
    }

    /// A lease that has lapsed is not held against the next head.
    pub(super) fn forgive_lapse(&mut self, now: SystemTime) {
        if matches!(self.run, Run::Leased(_)) && !self.is_held(now) {
            self.run = Run::Free;
        }
    }
}

impl Lanes {
    pub(super) fn get(&self, key: &OrderingKey) -> Option<&Lane> {
        self.lanes.get(key)
    }

    pub(super) fn get_mut(&mut self, key: &OrderingKey) -> Option<&mut Lane> {
        self.lanes.get_mut(key)
    }

    /// Every lane in the order of the ring.
    pub(super) fn ring(&self) -> impl Iterator<Item = (i64, &OrderingKey, &Lane)> {
        self.ring.iter().filter_map(|(turn_at, key)| Some((*turn_at, key, self.lanes.get(key)?)))
    }

    /// The lanes that may have a turn.
    pub(super) fn runnable(&self, now: SystemTime) -> impl Iterator<Item = (i64, &OrderingKey, &Lane)> {
        self.ring().filter(move |(_, _, lane)| lane.may_run(now))
    }

    pub(super) fn add(&mut self, key: &OrderingKey, place: i64) {
        let lane = self.lanes.entry(key.clone()).or_insert_with(|| {
            self.ring.insert((place, key.clone()));
            Lane { turn_at: place, places: BTreeSet::new(), run: Run::Free, lapses: 0 }
        });
        lane.places.insert(place);
    }

    /// Takes a message out of its lane. Lapses are the head's, and leave with it; a lane without messages disappears.
    pub(super) fn remove(&mut self, key: &OrderingKey, place: i64) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if lane.head() == Some(place) {
            lane.lapses = 0;
        }
        lane.places.remove(&place);
        if lane.places.is_empty() {
            self.ring.remove(&(lane.turn_at, key.clone()));
            self.lanes.remove(key);
        }
    }

    /// Ends a turn: the lane goes to the ring's tail.
    pub(super) fn end_turn(&mut self, key: &OrderingKey, run: Run, tail: i64) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.run = run;
        self.ring.remove(&(lane.turn_at, key.clone()));
        self.ring.insert((tail, key.clone()));
        lane.turn_at = tail;
    }
}
