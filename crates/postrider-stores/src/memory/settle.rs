//! Renewing leases and settling messages, guarded by the lease's token.
//!
//! A lease is held by its token, which is stored with the message or, on ordered queues, with its lane. Time does not matter: an
//! expired lease still belongs to its holder until another worker claims the message. A lease with another token is lost, and
//! nothing is changed for it.
//!
//! On an ordered queue a turn ends with its last message or with the first that fails. For the rest of a failed turn the same
//! call can only *release*, which has happened to those messages anyway; any other settlement would overtake the failure, and its
//! lease is reported as lost.

use super::{
    clock::after,
    lanes::{LaneBlock, LaneStatus},
    queue::{Location, Queue},
    row::{Row, StoredLease},
    tables::{PositionSequence, Tables},
};
use postrider_core::{
    Error, Lease, LeaseSettlement, MessageId, OnFailure, Ordering, Reason, Settlement, lease::Turn,
};
use std::{
    collections::HashSet,
    mem,
    time::{Duration, SystemTime},
};

impl Tables {
    pub(super) fn renew(&mut self, leases: &[Lease], lease_for: Duration, now: SystemTime) -> Vec<Lease> {
        let until = after(now, lease_for);
        let mut lost = Vec::new();
        for lease in leases {
            match self.queues.get_mut(lease.queue()).and_then(|queue| queue.stored_lease_mut(lease)) {
                Some(stored) => stored.until = until,
                None => lost.push(lease.clone()),
            }
        }
        lost
    }

    pub(super) fn settle(
        &mut self,
        settlements: &[LeaseSettlement],
        now: SystemTime,
    ) -> Result<Vec<Lease>, Error> {
        // Checked before anything changes, so that a failure changes nothing.
        if self.dead_letters_broken && settlements.iter().any(|settle| self.writes_dead_letter(settle)) {
            return Err(Error::Other("writes of dead letters are set to fail".into()));
        }
        // The messages of a lane are settled in their order, whatever the order of the call.
        let mut in_order: Vec<_> = settlements.iter().enumerate().collect();
        in_order.sort_by_key(|(_, settle)| settle.lease.turn().map(|turn| turn.position));

        let mut seen = HashSet::new();
        let mut failed_turns = HashSet::new();
        let mut lost = Vec::new();
        for (index, settle) in in_order {
            let lease = &settle.lease;
            let turn = lease.turn().map(|turn| (lease.queue(), &turn.key, lease.token()));
            let is_first = seen.insert(lease);
            let queue = self.queues.get_mut(lease.queue());
            if is_first
                && let Some(queue) = queue
                && queue.stored_lease_mut(lease).is_some()
            {
                queue.settle(settle, now, &mut self.positions);
                if ends_turn(&settle.settlement) {
                    failed_turns.extend(turn);
                }
                continue;
            }
            let is_absorbed = is_first
                && settle.settlement == Settlement::Release
                && turn.is_some_and(|turn| failed_turns.contains(&turn));
            if !is_absorbed {
                lost.push((index, lease.clone()));
            }
        }
        lost.sort_unstable_by_key(|(index, _)| *index);
        Ok(lost.into_iter().map(|(_, lease)| lease).collect())
    }

    /// Counts a delivery that begins in isolation. Returns whether the lease is still held.
    pub(super) fn count_isolated(&mut self, lease: &Lease) -> bool {
        let Some(queue) = self.queues.get_mut(lease.queue()) else { return false };
        if queue.stored_lease_mut(lease).is_none() {
            return false;
        }
        let Some(Location::Ready(position)) = queue.location(lease.id()) else { return false };
        let Some(row) = queue.ready.get_mut(&position) else { return false };
        row.isolated = row.isolated.saturating_add(1);
        true
    }

    /// Whether a lease is still held.
    pub(super) fn holds(&mut self, lease: &Lease) -> bool {
        self.queues.get_mut(lease.queue()).is_some_and(|queue| queue.stored_lease_mut(lease).is_some())
    }

    fn writes_dead_letter(&mut self, settle: &LeaseSettlement) -> bool {
        let Some(queue) = self.queues.get_mut(settle.lease.queue()) else { return false };
        matches!(settle.settlement, Settlement::Dead { .. })
            && queue.policy.dead_letters
            && matches!(queue.policy.ordering, Ordering::Unordered | Ordering::ByKey(OnFailure::Skip))
            && queue.stored_lease_mut(&settle.lease).is_some()
    }
}

/// Whether this settlement ends the turn, even if messages of the turn are left.
fn ends_turn(settlement: &Settlement) -> bool {
    match settlement {
        Settlement::Retry { .. } | Settlement::Dead { .. } | Settlement::Snooze { .. } => true,
        Settlement::Done | Settlement::Forward { .. } | Settlement::Release => false,
    }
}

impl Queue {
    /// The stored lease, if the token still matches.
    fn stored_lease_mut(&mut self, lease: &Lease) -> Option<&mut StoredLease> {
        let Location::Ready(position) = self.location(lease.id())? else { return None };
        let row = self.ready.get_mut(&position)?;
        let stored = match lease.turn() {
            None => row.lease.as_mut()?,
            Some(turn) if turn.key == row.lane && turn.position == position => {
                match &mut self.lanes.get_mut(&row.lane)?.status {
                    LaneStatus::Leased(stored) => stored,
                    LaneStatus::Free | LaneStatus::Blocked(_) => return None,
                }
            }
            Some(_) => return None,
        };
        (stored.token == lease.token()).then_some(stored)
    }

    fn settle(&mut self, settle: &LeaseSettlement, now: SystemTime, positions: &mut PositionSequence) {
        match (settle.lease.turn(), self.policy.ordering) {
            (Some(turn), Ordering::ByKey(on_failure)) => {
                let end = self.settle_in_turn(settle, turn, on_failure, now);
                if let Some(status) = end {
                    self.lanes.end_turn(&turn.key, status, positions.draw());
                }
            }
            _ => self.settle_message(settle, now),
        }
    }

    fn settle_message(&mut self, LeaseSettlement { lease, settlement }: &LeaseSettlement, now: SystemTime) {
        let Some(mut row) = self.take(lease.id()) else { return };
        row.lease = None;
        match settlement {
            Settlement::Done | Settlement::Forward { .. } => self.finish(row, now),
            Settlement::Retry { after: wait, error } => {
                row.fail(error.as_deref(), now);
                row.due_at = after(now, *wait);
                self.put_scheduled(row);
            }
            Settlement::Dead { reason, error } => {
                row.fail(error.as_deref(), now);
                self.put_dead(row, *reason, now);
            }
            Settlement::Release => {
                row.deliveries = row.deliveries.saturating_sub(1);
                self.put_ready(row);
            }
            Settlement::Snooze { after: wait } => {
                row.deliveries = row.deliveries.saturating_sub(1);
                row.isolated = 0;
                row.due_at = after(now, *wait);
                self.put_scheduled(row);
            }
        }
    }

    /// Settles one message of a turn, and returns the new status of its lane if the turn is over.
    fn settle_in_turn(
        &mut self,
        settle: &LeaseSettlement,
        turn: &Turn,
        on_failure: OnFailure,
        now: SystemTime,
    ) -> Option<LaneStatus> {
        let id = settle.lease.id();
        match (&settle.settlement, on_failure) {
            (Settlement::Release, _) => {}
            // A snooze is not a failure: neither the message nor the lane counts it.
            (Settlement::Snooze { after: wait }, _) => {
                let due_at = Some(after(now, *wait));
                return Some(LaneStatus::Blocked(LaneBlock { due_at, reason: None, error: None }));
            }
            (Settlement::Done | Settlement::Forward { .. }, _) => {
                let row = self.take_delivered(id, turn)?;
                self.finish(row, now);
            }
            (Settlement::Dead { reason, error }, OnFailure::Skip) => {
                let mut row = self.take_delivered(id, turn)?;
                row.fail(error.as_deref(), now);
                self.put_dead(row, *reason, now);
                return Some(LaneStatus::Free);
            }
            (Settlement::Dead { reason, error }, OnFailure::Block | OnFailure::Park) => {
                return self.block(turn, error.as_deref(), None, Some(*reason), now);
            }
            (Settlement::Retry { error, .. }, OnFailure::Park) => {
                return self.block(turn, error.as_deref(), None, None, now);
            }
            (Settlement::Retry { after: wait, error }, OnFailure::Block | OnFailure::Skip) => {
                return self.block(turn, error.as_deref(), Some(after(now, *wait)), None, now);
            }
        }
        turn.last.then_some(LaneStatus::Free)
    }

    /// Takes a message of a turn, and counts the delivery that the claim did not count.
    fn take_delivered(&mut self, id: MessageId, turn: &Turn) -> Option<Row> {
        let expired_leases = self.lanes.get(&turn.key)?.expired_leases;
        let mut row = self.take(id)?;
        row.deliver(expired_leases);
        Some(row)
    }

    /// A message fails and keeps its position, and its lane is blocked.
    fn block(
        &mut self,
        turn: &Turn,
        error: Option<&str>,
        due_at: Option<SystemTime>,
        reason: Option<Reason>,
        now: SystemTime,
    ) -> Option<LaneStatus> {
        let expired_leases = mem::take(&mut self.lanes.get_mut(&turn.key)?.expired_leases);
        let row = self.ready.get_mut(&turn.position)?;
        row.deliver(expired_leases);
        row.fail(error, now);
        row.due_at = due_at.unwrap_or(row.due_at);
        Some(LaneStatus::Blocked(LaneBlock { due_at, reason, error: row.error.clone() }))
    }
}
