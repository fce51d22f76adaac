//! The settlements of ordered queues in a batch: one entry per lane for the function `settle_lanes`.

use super::{
    queues::Queue,
    settle_batch::{seconds, text},
};
use crate::template::Template;
use postrider_core::{LeaseSettlement, OnFailure, Ordering, Settlement};
use sqlx::{Postgres, postgres::PgArguments, query::Query};
use std::{borrow::Cow, collections::BTreeMap};
use uuid::Uuid;

/// The settlements of turns, grouped by lane. Sorted, so that locks are taken in one order.
#[derive(Debug, Default)]
pub(super) struct LaneBatch<'s>(BTreeMap<(i16, &'s str, Uuid), LaneEntry<'s>>);

#[derive(Debug)]
struct LaneEntry<'s> {
    floor: i64,
    on_failure: OnFailure,
    /// By position.
    settlements: BTreeMap<i64, (usize, bool, &'s Settlement)>,
}

/// The outcome of a lane in this batch.
#[derive(Debug, Default)]
struct LaneOutcome<'s> {
    end: bool,
    release: bool,
    done: Vec<i64>,
    failed: Option<i64>,
    /// The turn is over, whatever settlements follow.
    is_over: bool,
    wait: Option<f64>,
    dead: bool,
    reason: Option<&'static str>,
    error: Option<Cow<'s, str>>,
    /// Settled after a failure of the same lane: the turn was over by then.
    lost: Vec<usize>,
}

impl<'s> LaneBatch<'s> {
    pub(super) fn add(&mut self, index: usize, queue: &Queue, settle: &'s LeaseSettlement, floor: i64) {
        let Some(turn) = settle.lease.turn() else { return };
        let on_failure = match queue.policy.ordering {
            Ordering::ByKey(on_failure) => on_failure,
            Ordering::Unordered => OnFailure::Block,
        };
        let entry = self
            .0
            .entry((queue.number, turn.key.as_str(), settle.lease.token().as_uuid()))
            .or_insert_with(|| LaneEntry { floor, on_failure, settlements: BTreeMap::new() });
        entry.settlements.insert(turn.position, (index, turn.last, &settle.settlement));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The settlements that are lost whatever the database says.
    pub(super) fn lost_here(&self) -> Vec<usize> {
        self.0.values().flat_map(|entry| entry.outcome().lost).collect()
    }

    /// The settlements of the lanes with these numbers, whose leases were lost. Lanes count from 1.
    pub(super) fn indexes_of(&self, lanes: &[i32]) -> Vec<usize> {
        let mut lost = self.0.values().zip(1..).filter(|(_, lane)| lanes.contains(lane));
        lost.by_ref().flat_map(|(entry, _)| entry.pending()).collect()
    }

    /// The call; `param` numbers its parameters.
    pub(super) fn call(mut param: impl FnMut() -> Template) -> Template {
        let types = [
            sql!("smallint[]"),
            sql!("text[]"),
            sql!("uuid[]"),
            sql!("boolean[]"),
            sql!("boolean[]"),
            sql!("bigint[]"),
            sql!("float8[]"),
            sql!("boolean[]"),
            sql!("text[]"),
            sql!("text[]"),
            sql!("bigint[]"),
            sql!("integer[]"),
            sql!("bigint[]"),
        ];
        let params = types.map(|cast| sql!("{number}::{cast}", number = param(), cast));
        sql!("{settle_lanes}({params})", params = Template::join(params, ", "))
    }

    pub(super) fn bind<'q>(
        &self,
        query: Query<'q, Postgres, PgArguments>,
    ) -> Query<'q, Postgres, PgArguments> {
        let outcomes: Vec<LaneOutcome<'_>> = self.0.values().map(LaneEntry::outcome).collect();
        let each = |value: fn(&LaneOutcome<'s>) -> bool| outcomes.iter().map(value).collect::<Vec<_>>();
        let owned = |value: Option<&str>| value.map(str::to_owned);
        let done = outcomes.iter().zip(1_i32..);
        let done: Vec<(i32, i64)> = done
            .flat_map(|(outcome, lane)| outcome.done.iter().map(move |position| (lane, *position)))
            .collect();
        query
            .bind(self.0.keys().map(|(queue, _, _)| *queue).collect::<Vec<_>>())
            .bind(self.0.keys().map(|(_, key, _)| (*key).to_owned()).collect::<Vec<_>>())
            .bind(self.0.keys().map(|(_, _, token)| *token).collect::<Vec<_>>())
            .bind(each(|outcome| outcome.end))
            .bind(each(|outcome| outcome.release))
            .bind(outcomes.iter().map(|outcome| outcome.failed).collect::<Vec<_>>())
            .bind(outcomes.iter().map(|outcome| outcome.wait).collect::<Vec<_>>())
            .bind(each(|outcome| outcome.dead))
            .bind(outcomes.iter().map(|outcome| owned(outcome.reason)).collect::<Vec<_>>())
            .bind(outcomes.iter().map(|outcome| owned(outcome.error.as_deref())).collect::<Vec<_>>())
            .bind(self.0.values().map(|entry| entry.floor).collect::<Vec<_>>())
            .bind(done.iter().map(|(lane, _)| *lane).collect::<Vec<_>>())
            .bind(done.iter().map(|(_, position)| *position).collect::<Vec<_>>())
    }
}

impl<'s> LaneEntry<'s> {
    fn outcome(&self) -> LaneOutcome<'s> {
        let mut outcome = LaneOutcome { release: true, ..LaneOutcome::default() };
        for (position, (index, last, settlement)) in &self.settlements {
            if outcome.is_over {
                if !matches!(settlement, Settlement::Release) {
                    outcome.lost.push(*index);
                }
                continue;
            }
            outcome.end |= last;
            match settlement {
                Settlement::Release => {}
                // Not a failure: neither the message nor the lane counts it.
                Settlement::Snooze { after } => {
                    (outcome.end, outcome.is_over) = (true, true);
                    outcome.wait = Some(seconds(*after));
                }
                Settlement::Done | Settlement::Forward { .. } => {
                    outcome.release = false;
                    outcome.done.push(*position);
                }
                Settlement::Retry { after, error } => {
                    let parks = self.on_failure == OnFailure::Park;
                    outcome.fail(*position, error.as_deref());
                    outcome.wait = Some(if parks { f64::INFINITY } else { seconds(*after) });
                }
                Settlement::Dead { reason, error } => {
                    outcome.fail(*position, error.as_deref());
                    outcome.reason = Some(reason.as_str());
                    outcome.dead = self.on_failure == OnFailure::Skip;
                    outcome.wait = (!outcome.dead).then_some(f64::INFINITY);
                }
            }
        }
        outcome
    }

    /// Every settlement that the database decides.
    fn pending(&self) -> Vec<usize> {
        let lost = self.outcome().lost;
        self.settlements.values().map(|(index, ..)| *index).filter(|index| !lost.contains(index)).collect()
    }
}

impl<'s> LaneOutcome<'s> {
    fn fail(&mut self, position: i64, error: Option<&'s str>) {
        (self.end, self.is_over) = (true, true);
        self.release = false;
        self.failed = Some(position);
        self.error = text(error);
    }
}
