//! Ending claims: what becomes of each message and of each key, decided here and written by `endings.rs`.
//!
//! Everything that the decision needs is read first, in one statement, under the write lock; so the decision is plain code, and
//! what it decides is written in a few statements, whatever the number of messages. It is one transaction: a settlement that
//! fails has changed nothing.
//!
//! On an ordered queue a turn ends with its last message or with the first that fails. What the same call says about the rest
//! of a failed turn can only be *release*, which is what happened to it anyway; anything else would have overtaken the
//! failure, and is lost.

use super::{
    Names,
    endings::{Endings, LaneEnd, Run},
    leases::{self, LaneState, Stand},
    moment::{Micros, after},
    queues::{self, Queue},
};
use postrider_core::{
    Error, Lease, OnFailure, Ordering, Settle, Settlement,
    limits::{ERROR_BYTES, truncated},
};
use sqlx::SqliteConnection;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Ends claims, and answers with those that were lost.
pub(super) async fn settle(
    connection: &mut SqliteConnection,
    names: &Names,
    settlements: &[Settle],
    now: Micros,
) -> Result<Vec<Lease>, Error> {
    let distinct: BTreeSet<_> = settlements.iter().map(|settle| settle.lease.queue()).collect();
    let queues = queues::existing(&mut *connection, names, distinct).await?;
    let stands = leases::stands(connection, names, settlements.iter().map(|settle| &settle.lease)).await?;
    let (endings, lost) = decide(&queues, settlements, &stands, now);
    endings.write(connection, names, &queues, now).await?;
    Ok(lost)
}

fn decide(
    queues: &[Queue],
    settlements: &[Settle],
    stands: &[Option<Stand>],
    now: Micros,
) -> (Endings, Vec<Lease>) {
    let orderings: HashMap<i64, Ordering> =
        queues.iter().map(|queue| (queue.number, queue.policy.ordering)).collect();
    // The messages of a lane end in their order, whatever the order of the call.
    let mut in_order: Vec<_> = settlements.iter().zip(stands).enumerate().collect();
    in_order.sort_by_key(|(_, (settle, _))| settle.lease.turn().map(|turn| turn.place));

    let mut endings = Endings::default();
    let mut ended = HashSet::new();
    let mut seen = HashSet::new();
    let mut failed_turns = HashSet::new();
    let mut lost = Vec::new();
    for (index, (settle, stand)) in in_order {
        let lease = &settle.lease;
        let turn = lease.turn().map(|turn| (lease.queue(), &turn.key, lease.token()));
        let is_first = seen.insert(lease);
        let held = stand.as_ref().filter(|stand| {
            is_first
                && stand.is_held_by(lease)
                && !ended.contains(&stand.place)
                && stand.lane.as_ref().is_none_or(|lane| !endings.has_ended(stand.queue, &lane.key))
        });
        if let Some(stand) = held {
            let is_over = match (&stand.lane, orderings.get(&stand.queue)) {
                (Some(lane), Some(Ordering::ByKey(on_failure))) => {
                    in_turn(&mut endings, settle, stand, lane, *on_failure, now)
                }
                _ => {
                    alone(&mut endings, settle, stand, now);
                    true
                }
            };
            if is_over {
                ended.insert(stand.place);
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
    (endings, lost.into_iter().map(|(_, lease)| lease).collect())
}

/// Ends the claim on a message of an unordered queue.
fn alone(endings: &mut Endings, settle: &Settle, stand: &Stand, now: Micros) {
    match &settle.settlement {
        Settlement::Done | Settlement::Forward { .. } => endings.finish(stand, 0),
        Settlement::Retry { after: wait, error } => {
            endings.fail(stand.place, text(error), 0, Some(after(now, *wait)));
            endings.waits.push(stand.place);
        }
        Settlement::Dead { reason, error } => {
            endings.fail(stand.place, text(error), 0, None);
            endings.bury(stand, *reason);
        }
        Settlement::Release => endings.released.push(stand.place),
        Settlement::Snooze { after: wait } => endings.snooze(stand.place, after(now, *wait)),
    }
}

/// Ends the claim on one message of a turn, and the turn, if that was its end. Answers whether the message has left its place.
fn in_turn(
    endings: &mut Endings,
    settle: &Settle,
    stand: &Stand,
    state: &LaneState,
    on_failure: OnFailure,
    now: Micros,
) -> bool {
    let is_last = settle.lease.turn().is_some_and(|turn| turn.last);
    let lane = endings.lane(stand.queue, state);
    let lapses = lane.lapses;
    // The claim did not count the delivery, nor those that lapsed before it.
    let delivered = lapses.saturating_add(1);
    match (&settle.settlement, on_failure) {
        (Settlement::Release, _) => {
            if is_last {
                lane.end(Run::Free);
            }
            return false;
        }
        // No failure: neither the message nor the lane counts anything.
        (Settlement::Snooze { after: wait }, _) => {
            lane.run = Some(Run::blocked(Some(after(now, *wait)), None, None));
            return false;
        }
        (Settlement::Done | Settlement::Forward { .. }, _) => {
            lane.leave(stand.place);
            if is_last {
                lane.end(Run::Free);
            }
            endings.finish(stand, delivered);
        }
        (Settlement::Dead { reason, error }, OnFailure::Skip) => {
            lane.leave(stand.place);
            lane.end(Run::Free);
            endings.fail(stand.place, text(error), delivered, None);
            endings.bury(stand, *reason);
        }
        (Settlement::Dead { reason, error }, OnFailure::Block | OnFailure::Park) => {
            lane.end(Run::blocked(None, Some(*reason), text(error)));
            endings.fail(stand.place, text(error), delivered, None);
            return false;
        }
        (Settlement::Retry { error, .. }, OnFailure::Park) => {
            lane.end(Run::blocked(None, None, text(error)));
            endings.fail(stand.place, text(error), delivered, None);
            return false;
        }
        (Settlement::Retry { after: wait, error }, OnFailure::Block | OnFailure::Skip) => {
            let due_at = after(now, *wait);
            lane.end(Run::blocked(Some(due_at), None, text(error)));
            endings.fail(stand.place, text(error), delivered, Some(due_at));
            return false;
        }
    }
    true
}

/// Whether a turn is over with this, whatever came behind it.
fn ends_turn(settlement: &Settlement) -> bool {
    matches!(settlement, Settlement::Retry { .. } | Settlement::Dead { .. } | Settlement::Snooze { .. })
}

fn text(error: &Option<String>) -> Option<String> {
    error.as_deref().map(|error| truncated(error, ERROR_BYTES).to_owned())
}

impl LaneEnd {
    /// A message leaves the lane. Lapses are the head's, and leave with it.
    fn leave(&mut self, place: i64) {
        self.has_left = true;
        if place == self.head {
            self.lapses = 0;
        }
    }

    fn end(&mut self, run: Run) {
        if matches!(run, Run::Blocked { .. }) {
            self.lapses = 0;
        }
        self.run = Some(run);
    }
}
