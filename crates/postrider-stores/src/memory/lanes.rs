//! The lanes of a queue that is ordered by key: the key is leased, not the message.
//!
//! A lane exists as long as its key has messages in `ready`. It is *free*, *leased* or *blocked*; a lane whose lease has expired and
//! a blocked one that has come due count as free. The lane alone determines whether a key may run, so messages neither move nor
//! change when their head fails, and none can overtake it.
//!
//! Turns are fair because lanes form a ring: a lane that ends its turn goes to the tail. Tails and message positions are drawn from
//! one sequence, so that keys and unordered messages can be compared by how long they have waited.
//!
//! A worker that crashes leaves an expired lease. The lane counts it (`expired_leases`), and while the count is not zero, the head is
//! claimed alone: the message that crashes workers is identified, and the messages behind it are not counted as failures.

use super::row::StoredLease;
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
    pub(super) positions: BTreeSet<i64>,
    pub(super) status: LaneStatus,
    pub(super) expired_leases: u32,
}

/// The status of a lane.
#[derive(Debug)]
pub(super) enum LaneStatus {
    Free,
    Leased(StoredLease),
    Blocked(LaneBlock),
}

/// Why a lane is blocked, and until when.
#[derive(Debug)]
pub(super) struct LaneBlock {
    /// When it may run again; `None` if the key is parked.
    pub(super) due_at: Option<SystemTime>,
    pub(super) reason: Option<Reason>,
    pub(super) error: Option<String>,
}

impl LaneBlock {
    pub(super) fn is_active(&self, now: SystemTime) -> bool {
        self.due_at.is_none_or(|due_at| due_at > now)
    }
}

impl Lane {
    pub(super) fn head(&self) -> Option<i64> {
        self.positions.first().copied()
    }

    pub(super) fn is_leased(&self, now: SystemTime) -> bool {
        matches!(&self.status, LaneStatus::Leased(lease) if lease.is_valid(now))
    }

    pub(super) fn block(&self, now: SystemTime) -> Option<&LaneBlock> {
        match &self.status {
            LaneStatus::Blocked(block) if block.is_active(now) => Some(block),
            _ => None,
        }
    }

    fn may_run(&self, now: SystemTime) -> bool {
        !self.is_leased(now) && self.block(now).is_none()
    }

    /// Begins a turn, and counts a lease that was not settled.
    pub(super) fn lease(&mut self, lease: StoredLease) {
        if let LaneStatus::Leased(_) = self.status {
            self.expired_leases = self.expired_leases.saturating_add(1);
        }
        self.status = LaneStatus::Leased(lease);
    }

    /// Clears an expired lease, so that it does not count against the next head.
    pub(super) fn clear_expired_lease(&mut self, now: SystemTime) {
        if matches!(self.status, LaneStatus::Leased(_)) && !self.is_leased(now) {
            self.status = LaneStatus::Free;
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

    /// All lanes in the order of the ring.
    pub(super) fn ring(&self) -> impl Iterator<Item = (i64, &OrderingKey, &Lane)> {
        self.ring.iter().filter_map(|(turn_at, key)| Some((*turn_at, key, self.lanes.get(key)?)))
    }

    /// The lanes that may be claimed.
    pub(super) fn runnable(&self, now: SystemTime) -> impl Iterator<Item = (i64, &OrderingKey, &Lane)> {
        self.ring().filter(move |(_, _, lane)| lane.may_run(now))
    }

    pub(super) fn add(&mut self, key: &OrderingKey, position: i64) {
        let lane = self.lanes.entry(key.clone()).or_insert_with(|| {
            self.ring.insert((position, key.clone()));
            Lane {
                turn_at: position,
                positions: BTreeSet::new(),
                status: LaneStatus::Free,
                expired_leases: 0,
            }
        });
        lane.positions.insert(position);
    }

    /// Removes a message from its lane. The expired leases are counted for the head and are cleared with it; a lane without messages
    /// is deleted.
    pub(super) fn remove(&mut self, key: &OrderingKey, position: i64) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if lane.head() == Some(position) {
            lane.expired_leases = 0;
        }
        lane.positions.remove(&position);
        if lane.positions.is_empty() {
            self.ring.remove(&(lane.turn_at, key.clone()));
            self.lanes.remove(key);
        }
    }

    /// Ends a turn: the lane goes to the tail of the ring.
    pub(super) fn end_turn(&mut self, key: &OrderingKey, status: LaneStatus, tail: i64) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.status = status;
        self.ring.remove(&(lane.turn_at, key.clone()));
        self.ring.insert((tail, key.clone()));
        lane.turn_at = tail;
    }
}
