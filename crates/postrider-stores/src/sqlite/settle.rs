//! Settling: decides the result for each message and each key; `settle_batch.rs` writes it.
//!
//! One statement reads everything that the decision needs, under the write lock. So the decision is plain code, and a few
//! statements write its result, whatever the number of messages. All of it is one transaction: a settlement that fails has
//! changed nothing.
//!
//! On an ordered queue a turn ends with its last message or with the first that fails. For the rest of a failed turn the same
//! call can only *release*, which has happened to those messages anyway; any other settlement would overtake the failure, and its
//! lease is reported as lost.

use super::{
    SqliteNames,
    queues::{self, Queue},
    renew::{self, LaneState, LeasedRow},
    settle_batch::{LaneStatus, LaneUpdate, SettleBatch},
    timestamp::{Micros, after},
};
use postrider_core::{
    Error, Lease, LeaseSettlement, OnFailure, Ordering, Settlement,
    limits::{ERROR_BYTES, truncated},
};
use sqlx::SqliteConnection;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Settles leased messages and returns the leases that were lost.
pub(super) async fn settle(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    settlements: &[LeaseSettlement],
    now: Micros,
) -> Result<Vec<Lease>, Error> {
    let distinct: BTreeSet<_> = settlements.iter().map(|settle| settle.lease.queue()).collect();
    let queues = queues::existing(&mut *connection, names, distinct).await?;
    let leased_rows =
        renew::leased_rows(connection, names, settlements.iter().map(|settle| &settle.lease)).await?;
    let (batch, lost) = decide(&queues, settlements, &leased_rows, now);
    batch.write(connection, names, &queues, now).await?;
    Ok(lost)
}

fn decide(
    queues: &[Queue],
    settlements: &[LeaseSettlement],
    leased_rows: &[Option<LeasedRow>],
    now: Micros,
) -> (SettleBatch, Vec<Lease>) {
    let orderings: HashMap<i64, Ordering> =
        queues.iter().map(|queue| (queue.number, queue.policy.ordering)).collect();
    // The messages of a lane are settled in their order, whatever the order of the call.
    let mut in_order: Vec<_> = settlements.iter().zip(leased_rows).enumerate().collect();
    in_order.sort_by_key(|(_, (settle, _))| settle.lease.turn().map(|turn| turn.position));

    let mut batch = SettleBatch::default();
    let mut ended = HashSet::new();
    let mut seen = HashSet::new();
    let mut failed_turns = HashSet::new();
    let mut lost = Vec::new();
    for (index, (settle, row)) in in_order {
        let lease = &settle.lease;
        let turn = lease.turn().map(|turn| (lease.queue(), &turn.key, lease.token()));
        let is_first = seen.insert(lease);
        let row = row.as_ref().filter(|row| {
            is_first
                && row.is_held_by(lease)
                && !ended.contains(&row.position)
                && row.lane.as_ref().is_none_or(|lane| !batch.has_ended(row.queue, &lane.key))
        });
        if let Some(row) = row {
            let is_over = match (&row.lane, orderings.get(&row.queue)) {
                (Some(lane), Some(Ordering::ByKey(on_failure))) => {
                    settle_in_turn(&mut batch, settle, row, lane, *on_failure, now)
                }
                _ => {
                    settle_unordered(&mut batch, settle, row, now);
                    true
                }
            };
            if is_over {
                ended.insert(row.position);
            }
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
    (batch, lost.into_iter().map(|(_, lease)| lease).collect())
}

/// Settles a message of an unordered queue.
fn settle_unordered(batch: &mut SettleBatch, settle: &LeaseSettlement, row: &LeasedRow, now: Micros) {
    match &settle.settlement {
        Settlement::Done | Settlement::Forward { .. } => batch.finish(row, 0),
        Settlement::Retry { after: wait, error } => {
            batch.fail(row.position, text(error), 0, Some(after(now, *wait)));
            batch.scheduled.push(row.position);
        }
        Settlement::Dead { reason, error } => {
            batch.fail(row.position, text(error), 0, None);
            batch.dead_letter(row, *reason);
        }
        Settlement::Release => batch.released.push(row.position),
        Settlement::Snooze { after: wait } => batch.snooze(row.position, after(now, *wait)),
    }
}

/// Settles one message of a turn, and ends the turn if it was the last. Returns whether the message has left `ready`.
fn settle_in_turn(
    batch: &mut SettleBatch,
    settle: &LeaseSettlement,
    row: &LeasedRow,
    state: &LaneState,
    on_failure: OnFailure,
    now: Micros,
) -> bool {
    let is_last = settle.lease.turn().is_some_and(|turn| turn.last);
    let lane = batch.lane(row.queue, state);
    let expired_leases = lane.expired_leases;
    // The claim counted neither this delivery nor the expired leases before it.
    let delivered = expired_leases.saturating_add(1);
    match (&settle.settlement, on_failure) {
        (Settlement::Release, _) => {
            if is_last {
                lane.end(LaneStatus::Free);
            }
            return false;
        }
        // A snooze is not a failure: neither the message nor the lane counts it.
        (Settlement::Snooze { after: wait }, _) => {
            lane.status = Some(LaneStatus::blocked(Some(after(now, *wait)), None, None));
            return false;
        }
        (Settlement::Done | Settlement::Forward { .. }, _) => {
            lane.leave(row.position);
            if is_last {
                lane.end(LaneStatus::Free);
            }
            batch.finish(row, delivered);
        }
        (Settlement::Dead { reason, error }, OnFailure::Skip) => {
            lane.leave(row.position);
            lane.end(LaneStatus::Free);
            batch.fail(row.position, text(error), delivered, None);
            batch.dead_letter(row, *reason);
        }
        (Settlement::Dead { reason, error }, OnFailure::Block | OnFailure::Park) => {
            lane.end(LaneStatus::blocked(None, Some(*reason), text(error)));
            batch.fail(row.position, text(error), delivered, None);
            return false;
        }
        (Settlement::Retry { error, .. }, OnFailure::Park) => {
            lane.end(LaneStatus::blocked(None, None, text(error)));
            batch.fail(row.position, text(error), delivered, None);
            return false;
        }
        (Settlement::Retry { after: wait, error }, OnFailure::Block | OnFailure::Skip) => {
            let due_at = after(now, *wait);
            lane.end(LaneStatus::blocked(Some(due_at), None, text(error)));
            batch.fail(row.position, text(error), delivered, Some(due_at));
            return false;
        }
    }
    true
}

/// Whether this settlement ends the turn, even if messages of the turn are left.
fn ends_turn(settlement: &Settlement) -> bool {
    match settlement {
        Settlement::Retry { .. } | Settlement::Dead { .. } | Settlement::Snooze { .. } => true,
        Settlement::Done | Settlement::Forward { .. } | Settlement::Release => false,
    }
}

fn text(error: &Option<String>) -> Option<String> {
    error.as_deref().map(|error| truncated(error, ERROR_BYTES).to_owned())
}

impl LaneUpdate {
    /// A message leaves the lane. The expired leases are counted for the head and are cleared with it.
    fn leave(&mut self, position: i64) {
        self.has_left = true;
        if position == self.head {
            self.expired_leases = 0;
        }
    }

    fn end(&mut self, status: LaneStatus) {
        if matches!(status, LaneStatus::Blocked { .. }) {
            self.expired_leases = 0;
        }
        self.status = Some(status);
    }
}
