//! Sorting a batch of settlements by what has to be done.

use super::{
    lane_settle::LaneBatch,
    queues::{Known, Queue},
    returned::SHORT,
};
use postrider_core::{Lease, LeaseToken, QueueName, Settle, Settlement, limits};
use std::{borrow::Cow, collections::HashSet, sync::Arc, time::Duration};

/// The kinds of endings, in the order of the statement's parts.
pub(super) const KINDS: usize = 7;
pub(super) const DONE: usize = 0;
pub(super) const KEEP: usize = 1;
pub(super) const RETRY: usize = 2;
pub(super) const DEAD: usize = 3;
pub(super) const RELEASE: usize = 4;
pub(super) const SNOOZE: usize = 5;
/// A retry that waits in its place.
pub(super) const AGAIN: usize = 6;

/// How one message ends.
#[derive(Debug, Clone)]
pub(super) struct Ending<'s> {
    pub(super) index: usize,
    pub(super) lease: &'s Lease,
    pub(super) queue: i16,
    pub(super) kind: usize,
    /// Seconds to wait or to keep.
    pub(super) seconds: f64,
    pub(super) reason: Option<&'static str>,
    pub(super) error: Option<Cow<'s, str>>,
}

/// Endings by kind, sorted by id; every id is there once.
#[derive(Debug, Default)]
pub(super) struct Wave<'s>(pub(super) [Vec<Ending<'s>>; KINDS]);

/// A batch, sorted.
#[derive(Debug, Default)]
pub(super) struct Batch<'s> {
    /// What is lost whatever the database says: settled already, earlier in the batch, or of a queue that is not there.
    pub(super) lost: Vec<usize>,
    pub(super) lanes: LaneBatch<'s>,
    /// One, unless the batch holds an id more than once: under several tokens, or in several queues.
    pub(super) waves: Vec<Wave<'s>>,
}

impl<'s> Batch<'s> {
    /// `in_place`: whether retries that are due soon wait where they are.
    pub(super) fn sort(
        settlements: &'s [Settle],
        known: &Known,
        floor: impl Fn(&QueueName) -> i64,
        in_place: bool,
    ) -> Self {
        let mut batch = Self::default();
        let mut endings: Vec<Ending<'s>> = Vec::with_capacity(settlements.len());
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
                endings.push(ending(index, settle, queue, in_place));
            } else if turns.insert((queue.number, settle.lease.id(), settle.lease.token())) {
                batch.lanes.add(index, queue, settle, floor(&queue.name));
            } else {
                batch.lost.push(index);
            }
        }
        batch.lost.extend(batch.lanes.lost_here());
        batch.make_waves(endings);
        batch
    }

    fn make_waves(&mut self, mut endings: Vec<Ending<'s>>) {
        // Stable, so that of two settlements of one claim the first counts.
        endings.sort_by_key(Ending::claim);
        let (mut previous, mut wave) = (None, 0);
        for ending in endings {
            let claim = ending.claim();
            if previous == Some(claim) {
                self.lost.push(ending.index);
                continue;
            }
            // The same id again: a statement of its own, since rows are found by id.
            wave = if previous.is_some_and(|(id, ..)| id == claim.0) { wave + 1 } else { 0 };
            if wave == self.waves.len() {
                self.waves.push(Wave::default());
            }
            previous = Some(claim);
            self.waves[wave].0[ending.kind].push(ending);
        }
    }
}

impl Ending<'_> {
    fn claim(&self) -> (uuid::Uuid, LeaseToken, i16) {
        (self.lease.id().as_uuid(), self.lease.token(), self.queue)
    }
}

impl<'s> Wave<'s> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Ending<'s>> {
        self.0.iter().flatten()
    }

    /// The kinds that are there, as bits.
    pub(super) fn kinds(&self) -> u8 {
        (0..KINDS).filter(|kind| !self.0[*kind].is_empty()).fold(0, |bits, kind| bits | (1 << kind))
    }

    /// The token and the queue of the claim that this settles, if it is one.
    pub(super) fn one_claim(&self) -> Option<(LeaseToken, i16)> {
        let mut claims = self.iter().map(|ending| (ending.lease.token(), ending.queue));
        let first = claims.next()?;
        claims.all(|claim| claim == first).then_some(first)
    }
}

fn ending<'s>(index: usize, settle: &'s Settle, queue: &Queue, in_place: bool) -> Ending<'s> {
    let (lease, policy) = (&settle.lease, &queue.policy);
    let plain =
        |kind| Ending { index, lease, queue: queue.number, kind, seconds: 0.0, reason: None, error: None };
    match &settle.settlement {
        Settlement::Done | Settlement::Forward { .. } => match policy.keep_for {
            Some(keep) => Ending { seconds: keep.as_secs_f64(), ..plain(KEEP) },
            None => plain(DONE),
        },
        Settlement::Retry { after, error } => {
            // Where tenants take turns, a claim does not ask for places.
            let here = in_place && *after <= SHORT && lease.place().is_some() && !policy.fair_by_tenant;
            let kind = if here { AGAIN } else { RETRY };
            Ending { seconds: seconds(*after), error: text(error.as_deref()), ..plain(kind) }
        }
        Settlement::Dead { .. } if !policy.dead_letters => plain(DONE),
        Settlement::Dead { reason, error } => {
            Ending { reason: Some(reason.as_str()), error: text(error.as_deref()), ..plain(DEAD) }
        }
        Settlement::Release => plain(RELEASE),
        Settlement::Snooze { after } => Ending { seconds: seconds(*after), ..plain(SNOOZE) },
    }
}

/// A delay that every database can add to the time.
pub(super) fn seconds(after: Duration) -> f64 {
    after.min(limits::FARTHEST_DUE).as_secs_f64()
}

/// Error text as it is kept: not longer than the limit, and without the one character that PostgreSQL refuses.
pub(super) fn text(error: Option<&str>) -> Option<Cow<'_, str>> {
    let error = limits::truncated(error?, limits::ERROR_BYTES);
    Some(if error.contains('\0') { error.replace('\0', " ").into() } else { error.into() })
}
