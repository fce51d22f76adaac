//! What a batch says about turns: one entry per lane for the function `settle_lanes`.

use super::{
    batch::{seconds, text},
    queues::Queue,
};
use postrider_core::{OnFailure, Ordering, Settle, Settlement};
use sqlx::{Postgres, postgres::PgArguments, query::Query};
use std::{borrow::Cow, collections::BTreeMap};
use uuid::Uuid;

/// The settlements of turns, grouped by lane. Sorted, so that locks are taken in one order.
#[derive(Debug, Default)]
pub(super) struct LaneBatch<'s>(BTreeMap<(i16, &'s str, Uuid), Entry<'s>>);

#[derive(Debug)]
struct Entry<'s> {
    floor: i64,
    on_failure: OnFailure,
    /// In the order of the line.
    settlements: BTreeMap<i64, (usize, bool, &'s Settlement)>,
}

/// What became of a lane in this batch.
#[derive(Debug, Default)]
struct Outcome<'s> {
    end: bool,
    release: bool,
    done: Vec<i64>,
    failed: Option<i64>,
    /// The turn is over, whatever came behind.
    is_over: bool,
    wait: Option<f64>,
    bury: bool,
    reason: Option<&'static str>,
    error: Option<Cow<'s, str>>,
    /// Settled behind a failure of the same lane: the turn was over by then.
    lost: Vec<usize>,
}

impl<'s> LaneBatch<'s> {
    pub(super) fn add(&mut self, index: usize, queue: &Queue, settle: &'s Settle, floor: i64) {
        let Some(turn) = settle.lease.turn() else { return };
        let on_failure = match queue.policy.ordering {
            Ordering::ByKey(on_failure) => on_failure,
            Ordering::Unordered => OnFailure::Block,
        };
        let entry = self
            .0
            .entry((queue.number, turn.key.as_str(), settle.lease.token().as_uuid()))
            .or_insert_with(|| Entry { floor, on_failure, settlements: BTreeMap::new() });
        entry.settlements.insert(turn.place, (index, turn.last, &settle.settlement));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is lost whatever the database says.
    pub(super) fn lost_here(&self) -> Vec<usize> {
        self.0.values().flat_map(|entry| entry.outcome().lost).collect()
    }

    /// The settlements of the lanes at these positions, which were not ours any more. Positions count from 1.
    pub(super) fn indexes_of(&self, positions: &[i32]) -> Vec<usize> {
        let mut lanes = self.0.values().zip(1..).filter(|(_, position)| positions.contains(position));
        lanes.by_ref().flat_map(|(entry, _)| entry.held()).collect()
    }

    /// The call, with its parameters numbered by `param`.
    pub(super) fn call(param: &mut impl FnMut(&str) -> String) -> String {
        let types = [
            "smallint[]",
            "text[]",
            "uuid[]",
            "boolean[]",
            "boolean[]",
            "bigint[]",
            "float8[]",
            "boolean[]",
            "text[]",
            "text[]",
            "bigint[]",
            "integer[]",
            "bigint[]",
        ];
        let params: Vec<_> = types.iter().map(|cast| param(cast)).collect();
        format!("{{settle_lanes}}({})", params.join(", "))
    }

    pub(super) fn bind<'q>(
        &self,
        query: Query<'q, Postgres, PgArguments>,
    ) -> Query<'q, Postgres, PgArguments> {
        let outcomes: Vec<Outcome<'_>> = self.0.values().map(Entry::outcome).collect();
        let each = |value: fn(&Outcome<'s>) -> bool| outcomes.iter().map(value).collect::<Vec<_>>();
        let owned = |value: Option<&str>| value.map(str::to_owned);
        let done = outcomes.iter().zip(1_i32..);
        let done: Vec<(i32, i64)> =
            done.flat_map(|(outcome, lane)| outcome.done.iter().map(move |place| (lane, *place))).collect();
        query
            .bind(self.0.keys().map(|(queue, _, _)| *queue).collect::<Vec<_>>())
            .bind(self.0.keys().map(|(_, key, _)| (*key).to_owned()).collect::<Vec<_>>())
            .bind(self.0.keys().map(|(_, _, token)| *token).collect::<Vec<_>>())
            .bind(each(|outcome| outcome.end))
            .bind(each(|outcome| outcome.release))
            .bind(outcomes.iter().map(|outcome| outcome.failed).collect::<Vec<_>>())
            .bind(outcomes.iter().map(|outcome| outcome.wait).collect::<Vec<_>>())
            .bind(each(|outcome| outcome.bury))
            .bind(outcomes.iter().map(|outcome| owned(outcome.reason)).collect::<Vec<_>>())
            .bind(outcomes.iter().map(|outcome| owned(outcome.error.as_deref())).collect::<Vec<_>>())
            .bind(self.0.values().map(|entry| entry.floor).collect::<Vec<_>>())
            .bind(done.iter().map(|(lane, _)| *lane).collect::<Vec<_>>())
            .bind(done.iter().map(|(_, place)| *place).collect::<Vec<_>>())
    }
}

impl<'s> Entry<'s> {
    fn outcome(&self) -> Outcome<'s> {
        let mut outcome = Outcome { release: true, ..Outcome::default() };
        for (place, (index, last, settlement)) in &self.settlements {
            if outcome.is_over {
                if !matches!(settlement, Settlement::Release) {
                    outcome.lost.push(*index);
                }
                continue;
            }
            outcome.end |= last;
            match settlement {
                Settlement::Release => {}
                // No failure: neither the message nor the lane counts anything.
                Settlement::Snooze { after } => {
                    (outcome.end, outcome.is_over) = (true, true);
                    outcome.wait = Some(seconds(*after));
                }
                Settlement::Done | Settlement::Forward { .. } => {
                    outcome.release = false;
                    outcome.done.push(*place);
                }
                Settlement::Retry { after, error } => {
                    let parks = self.on_failure == OnFailure::Park;
                    outcome.fail(*place, error.as_deref());
                    outcome.wait = Some(if parks { f64::INFINITY } else { seconds(*after) });
                }
                Settlement::Dead { reason, error } => {
                    outcome.fail(*place, error.as_deref());
                    outcome.reason = Some(reason.as_str());
                    outcome.bury = self.on_failure == OnFailure::Skip;
                    outcome.wait = (!outcome.bury).then_some(f64::INFINITY);
                }
            }
        }
        outcome
    }

    /// Every settlement that the database decides on.
    fn held(&self) -> Vec<usize> {
        let lost = self.outcome().lost;
        self.settlements.values().map(|(index, ..)| *index).filter(|index| !lost.contains(index)).collect()
    }
}

impl<'s> Outcome<'s> {
    fn fail(&mut self, place: i64, error: Option<&'s str>) {
        (self.end, self.is_over) = (true, true);
        self.release = false;
        self.failed = Some(place);
        self.error = text(error);
    }
}
