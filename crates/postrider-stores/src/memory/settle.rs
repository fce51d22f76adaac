//! Renewing and ending claims, each guarded by its token.
//!
//! A claim belongs to whoever holds the token that the message or, on ordered queues, its lane carries. Time plays no part: a
//! lapsed lease that nobody retook is still its owner's. What carries another token is lost, and nothing is changed for it.
//!
//! On an ordered queue a turn ends with its last message or with the first that fails. What the same call says about the rest
//! of a failed turn can only be *release*, which is what happened to it anyway; anything else would have overtaken the
//! failure, and is lost.

use super::{
    clock::after,
    lanes::{Block, Run},
    queue::{Queue, Spot},
    rooms::{Line, Rooms},
    row::{Held, Row},
};
use postrider_core::{Error, Lease, MessageId, OnFailure, Ordering, Reason, Settle, Settlement, lease::Turn};
use std::{
    collections::HashSet,
    mem,
    time::{Duration, SystemTime},
};

impl Rooms {
    pub(super) fn renew(&mut self, leases: &[Lease], lease_for: Duration, now: SystemTime) -> Vec<Lease> {
        let until = after(now, lease_for);
        let mut lost = Vec::new();
        for lease in leases {
            match self.queues.get_mut(lease.queue()).and_then(|queue| queue.held_mut(lease)) {
                Some(held) => held.until = until,
                None => lost.push(lease.clone()),
            }
        }
        lost
    }

    pub(super) fn settle(&mut self, settlements: &[Settle], now: SystemTime) -> Result<Vec<Lease>, Error> {
        // Looked at before anything changes, so that a failure has changed nothing.
        if self.dead_letters_broken && settlements.iter().any(|settle| self.buries(settle)) {
            return Err(Error::Other("writing dead letters is broken".into()));
        }
        // The messages of a lane end in their order, whatever the order of the call.
        let mut in_order: Vec<_> = settlements.iter().enumerate().collect();
        in_order.sort_by_key(|(_, settle)| settle.lease.turn().map(|turn| turn.place));

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
                && queue.held_mut(lease).is_some()
            {
                queue.settle(settle, now, &mut self.line);
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

    /// Whether a lease is still good.
    pub(super) fn holds(&mut self, lease: &Lease) -> bool {
        self.queues.get_mut(lease.queue()).is_some_and(|queue| queue.held_mut(lease).is_some())
    }

    fn buries(&mut self, settle: &Settle) -> bool {
        let Some(queue) = self.queues.get_mut(settle.lease.queue()) else { return false };
        matches!(settle.settlement, Settlement::Dead { .. })
            && queue.policy.dead_letters
            && matches!(queue.policy.ordering, Ordering::Unordered | Ordering::ByKey(OnFailure::Skip))
            && queue.held_mut(&settle.lease).is_some()
    }
}

/// Whether a turn is over with this, whatever came behind it.
fn ends_turn(settlement: &Settlement) -> bool {
    matches!(settlement, Settlement::Retry { .. } | Settlement::Dead { .. } | Settlement::Snooze { .. })
}

impl Queue {
    /// The lease that the store keeps for this one, if the token still fits.
    fn held_mut(&mut self, lease: &Lease) -> Option<&mut Held> {
        let Spot::Ready(place) = self.spot(lease.id())? else { return None };
        let row = self.ready.get_mut(&place)?;
        let held = match lease.turn() {
            None => row.held.as_mut()?,
            Some(turn) if turn.key == row.lane && turn.place == place => {
                match &mut self.lanes.get_mut(&row.lane)?.run {
                    Run::Leased(held) => held,
                    Run::Free | Run::Blocked(_) => return None,
                }
            }
            Some(_) => return None,
        };
        (held.token == lease.token()).then_some(held)
    }

    fn settle(&mut self, settle: &Settle, now: SystemTime, line: &mut Line) {
        match (settle.lease.turn(), self.policy.ordering) {
            (Some(turn), Ordering::ByKey(on_failure)) => {
                let end = self.settle_in_turn(settle, turn, on_failure, now);
                if let Some(run) = end {
                    self.lanes.end_turn(&turn.key, run, line.draw());
                }
            }
            _ => self.settle_message(settle, now),
        }
    }

    fn settle_message(&mut self, Settle { lease, settlement }: &Settle, now: SystemTime) {
        let Some(mut row) = self.take(lease.id()) else { return };
        row.held = None;
        match settlement {
            Settlement::Done | Settlement::Forward { .. } => self.finish(row, now),
            Settlement::Retry { after: wait, error } => {
                row.fail(error.as_deref());
                row.due_at = after(now, *wait);
                self.put_later(row);
            }
            Settlement::Dead { reason, error } => {
                row.fail(error.as_deref());
                self.bury(row, *reason, now);
            }
            Settlement::Release => {
                row.deliveries = row.deliveries.saturating_sub(1);
                self.put_ready(row);
            }
            Settlement::Snooze { after: wait } => {
                row.deliveries = row.deliveries.saturating_sub(1);
                row.due_at = after(now, *wait);
                self.put_later(row);
            }
        }
    }

    /// Settles one message of a turn, and answers with what becomes of its lane if the turn is over.
    fn settle_in_turn(
        &mut self,
        settle: &Settle,
        turn: &Turn,
        on_failure: OnFailure,
        now: SystemTime,
    ) -> Option<Run> {
        let id = settle.lease.id();
        match (&settle.settlement, on_failure) {
            (Settlement::Release, _) => {}
            // No failure: neither the message nor the lane counts anything.
            (Settlement::Snooze { after: wait }, _) => {
                let due_at = Some(after(now, *wait));
                return Some(Run::Blocked(Block { due_at, reason: None, error: None }));
            }
            (Settlement::Done | Settlement::Forward { .. }, _) => {
                let row = self.take_delivered(id, turn)?;
                self.finish(row, now);
            }
            (Settlement::Dead { reason, error }, OnFailure::Skip) => {
                let mut row = self.take_delivered(id, turn)?;
                row.fail(error.as_deref());
                self.bury(row, *reason, now);
                return Some(Run::Free);
            }
            (Settlement::Dead { reason, error }, OnFailure::Block | OnFailure::Park) => {
                return self.block(turn, error.as_deref(), None, Some(*reason));
            }
            (Settlement::Retry { error, .. }, OnFailure::Park) => {
                return self.block(turn, error.as_deref(), None, None);
            }
            (Settlement::Retry { after: wait, error }, OnFailure::Block | OnFailure::Skip) => {
                return self.block(turn, error.as_deref(), Some(after(now, *wait)), None);
            }
        }
        turn.last.then_some(Run::Free)
    }

    /// Takes a message of a turn, and counts the delivery that the claim did not write down.
    fn take_delivered(&mut self, id: MessageId, turn: &Turn) -> Option<Row> {
        let lapses = self.lanes.get(&turn.key)?.lapses;
        let mut row = self.take(id)?;
        row.deliver(lapses);
        Some(row)
    }

    /// A message fails in its place, and its lane waits with it.
    fn block(
        &mut self,
        turn: &Turn,
        error: Option<&str>,
        due_at: Option<SystemTime>,
        reason: Option<Reason>,
    ) -> Option<Run> {
        let lapses = mem::take(&mut self.lanes.get_mut(&turn.key)?.lapses);
        let row = self.ready.get_mut(&turn.place)?;
        row.deliver(lapses);
        row.fail(error);
        row.due_at = due_at.unwrap_or(row.due_at);
        Some(Run::Blocked(Block { due_at, reason, error: row.error.clone() }))
    }
}
