//! A batch of settlements, sorted by ending and split into statements.

use super::{
    in_place_retries::MAX_DELAY,
    lane_settle::LaneBatch,
    queues::{Queue, QueueMap},
};
use postrider_core::{Lease, LeaseSettlement, LeaseToken, QueueName, Settlement, limits};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

/// The ways in which a message ends, in the order of the statement's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Ending {
    Done,
    Keep,
    Retry,
    Dead,
    Release,
    Snooze,
    /// A retry that waits in place.
    RetryInPlace,
}

/// The settlement of one message of an unordered queue.
#[derive(Debug, Clone)]
pub(super) struct RowSettlement<'s> {
    pub(super) index: usize,
    pub(super) lease: &'s Lease,
    pub(super) queue: i16,
    pub(super) ending: Ending,
    /// Seconds to wait or to keep.
    pub(super) seconds: f64,
    pub(super) reason: Option<&'static str>,
    pub(super) error: Option<Cow<'s, str>>,
}

/// The settlements of one statement, by ending and sorted by id; every id occurs once.
#[derive(Debug, Default)]
pub(super) struct SettleStep<'s>(BTreeMap<Ending, Vec<RowSettlement<'s>>>);

/// A batch, sorted.
#[derive(Debug, Default)]
pub(super) struct Batch<'s> {
    /// Lost whatever the database says: settled already, earlier in the batch, or of a queue that does not exist.
    pub(super) lost: Vec<usize>,
    pub(super) lanes: LaneBatch<'s>,
    /// One, unless the batch contains an id more than once: under several tokens, or in several queues.
    pub(super) steps: Vec<SettleStep<'s>>,
}

impl<'s> Batch<'s> {
    /// `in_place`: whether retries that are due soon stay in `ready`.
    pub(super) fn sort(
        settlements: &'s [LeaseSettlement],
        known: &QueueMap,
        floor: impl Fn(&QueueName) -> i64,
        in_place: bool,
    ) -> Self {
        let mut batch = Self::default();
        let mut rows: Vec<RowSettlement<'s>> = Vec::with_capacity(settlements.len());
        let mut turns = HashSet::new();
        let mut last: Option<(&QueueName, &Arc<Queue>)> = None;
        for (index, settle) in settlements.iter().enumerate() {
            let name = settle.lease.queue();
            // Most batches are of one queue.
            let queue = match last {
                Some((last, queue)) if last == name => Some(queue),
                _ => known.named(name),
            };
            let Some(queue) = queue else {
                batch.lost.push(index);
                continue;
            };
            last = Some((name, queue));
            if settle.lease.turn().is_none() {
                rows.push(row_settlement(index, settle, queue, in_place));
            } else if turns.insert((queue.number, settle.lease.id(), settle.lease.token())) {
                batch.lanes.add(index, queue, settle, floor(&queue.name));
            } else {
                batch.lost.push(index);
            }
        }
        batch.lost.extend(batch.lanes.lost_here());
        batch.split_into_steps(rows);
        batch
    }

    fn split_into_steps(&mut self, mut rows: Vec<RowSettlement<'s>>) {
        // A stable sort, so that of two settlements of one claim the first counts.
        rows.sort_by_key(RowSettlement::claim);
        let (mut previous, mut step) = (None, 0);
        for row in rows {
            let claim = row.claim();
            if previous == Some(claim) {
                self.lost.push(row.index);
                continue;
            }
            // The same id again: a statement of its own, because rows are found by id.
            step = if previous.is_some_and(|(id, ..)| id == claim.0) { step + 1 } else { 0 };
            if step == self.steps.len() {
                self.steps.push(SettleStep::default());
            }
            previous = Some(claim);
            self.steps[step].0.entry(row.ending).or_default().push(row);
        }
    }
}

impl RowSettlement<'_> {
    fn claim(&self) -> (uuid::Uuid, LeaseToken, i16) {
        (self.lease.id().as_uuid(), self.lease.token(), self.queue)
    }
}

impl<'s> SettleStep<'s> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &RowSettlement<'s>> {
        self.0.values().flatten()
    }

    /// The endings that occur, each with its rows, in the order of the statement's parts.
    pub(super) fn by_ending(&self) -> impl Iterator<Item = (Ending, &[RowSettlement<'s>])> {
        self.0.iter().map(|(ending, rows)| (*ending, rows.as_slice()))
    }

    /// The token and the queue, if all settlements are of one claim.
    pub(super) fn one_claim(&self) -> Option<(LeaseToken, i16)> {
        let mut claims = self.iter().map(|row| (row.lease.token(), row.queue));
        let first = claims.next()?;
        claims.all(|claim| claim == first).then_some(first)
    }
}

fn row_settlement<'s>(
    index: usize,
    settle: &'s LeaseSettlement,
    queue: &Queue,
    in_place: bool,
) -> RowSettlement<'s> {
    let (lease, policy) = (&settle.lease, &queue.policy);
    let plain = |ending| RowSettlement {
        index,
        lease,
        queue: queue.number,
        ending,
        seconds: 0.0,
        reason: None,
        error: None,
    };
    match &settle.settlement {
        Settlement::Done | Settlement::Forward { .. } => match policy.keep_for {
            Some(keep) => RowSettlement { seconds: keep.as_secs_f64(), ..plain(Ending::Keep) },
            None => plain(Ending::Done),
        },
        Settlement::Retry { after, error } => {
            // When tenants take turns, a claim does not read by positions.
            let here =
                in_place && *after <= MAX_DELAY && lease.position().is_some() && !policy.fair_by_tenant;
            let ending = if here { Ending::RetryInPlace } else { Ending::Retry };
            RowSettlement { seconds: seconds(*after), error: text(error.as_deref()), ..plain(ending) }
        }
        Settlement::Dead { .. } if !policy.dead_letters => plain(Ending::Done),
        Settlement::Dead { reason, error } => RowSettlement {
            reason: Some(reason.as_str()),
            error: text(error.as_deref()),
            ..plain(Ending::Dead)
        },
        Settlement::Release => plain(Ending::Release),
        Settlement::Snooze { after } => RowSettlement { seconds: seconds(*after), ..plain(Ending::Snooze) },
    }
}

/// A delay that stays within the calendar of the database.
pub(super) fn seconds(after: Duration) -> f64 {
    after.min(limits::FARTHEST_DUE).as_secs_f64()
}

/// Error text as it is stored: not longer than the limit, and without NUL, which PostgreSQL refuses.
pub(super) fn text(error: Option<&str>) -> Option<Cow<'_, str>> {
    let error = limits::truncated(error?, limits::ERROR_BYTES);
    Some(if error.contains('\0') { error.replace('\0', " ").into() } else { error.into() })
}
