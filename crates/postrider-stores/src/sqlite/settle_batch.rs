//! The writes of a settlement: a few statements, whatever the number of messages.
//!
//! A move copies a row to its new table and then deletes it from `ready`. Both are in one transaction, so the delete never happens
//! without the copy.

use super::{
    SqliteNames,
    error::store_error,
    lanes,
    queues::{self, Queue},
    renew::{LaneState, LeasedRow},
    row::{BODY, body, json},
    statement_batch::{execute_each_position, query_each},
    timestamp::{Micros, NEVER, after},
};
use crate::template::Template;
use postrider_core::{Error, Reason};
use serde_json::{Value, json};
use sqlx::{SqliteConnection, sqlite::SqliteQueryResult};
use std::collections::{BTreeMap, btree_map::Entry};
use uuid::Uuid;

/// The changes to messages, by their positions, and to lanes.
#[derive(Debug, Default)]
pub(super) struct SettleBatch {
    /// By queue: the position, and the deliveries that the claim did not count.
    finished: BTreeMap<i64, Vec<(i64, u32)>>,
    dead_lettered: BTreeMap<i64, Vec<(i64, Reason)>>,
    /// Moved to `scheduled`, until they are due.
    pub(super) scheduled: Vec<i64>,
    /// Released: the delivery is not counted.
    pub(super) released: Vec<i64>,
    failures: Vec<Failure>,
    /// Snoozed: the delivery is not counted. The position and the due time.
    snoozes: Vec<(i64, Micros)>,
    /// The timers that end, each with its message.
    timers: Vec<(i64, String, Uuid)>,
    lanes: BTreeMap<(i64, String), LaneUpdate>,
}

#[derive(Debug)]
struct Failure {
    position: i64,
    error: Option<String>,
    delivered: u32,
    due_at: Option<Micros>,
}

/// The change to a lane.
#[derive(Debug)]
pub(super) struct LaneUpdate {
    pub(super) head: i64,
    pub(super) expired_leases: u32,
    /// Messages have left it: it may be empty.
    pub(super) has_left: bool,
    /// The new status, if the turn is over.
    pub(super) status: Option<LaneStatus>,
}

/// The status of a lane after a turn.
#[derive(Debug)]
pub(super) enum LaneStatus {
    Free,
    Blocked { due_at: Micros, reason: Option<Reason>, error: Option<String> },
}

impl LaneStatus {
    pub(super) fn blocked(due_at: Option<Micros>, reason: Option<Reason>, error: Option<String>) -> Self {
        Self::Blocked { due_at: due_at.unwrap_or(NEVER), reason, error }
    }
}

impl SettleBatch {
    pub(super) fn has_ended(&self, queue: i64, key: &str) -> bool {
        self.lanes.get(&(queue, key.to_owned())).is_some_and(|lane| lane.status.is_some())
    }

    pub(super) fn lane(&mut self, queue: i64, state: &LaneState) -> &mut LaneUpdate {
        match self.lanes.entry((queue, state.key.clone())) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(lane) => lane.insert(LaneUpdate {
                head: state.head,
                expired_leases: state.expired_leases,
                has_left: false,
                status: None,
            }),
        }
    }

    pub(super) fn finish(&mut self, row: &LeasedRow, delivered: u32) {
        self.finished.entry(row.queue).or_default().push((row.position, delivered));
        self.timers.extend(row.timer.clone().map(|name| (row.queue, name, row.id)));
    }

    pub(super) fn dead_letter(&mut self, row: &LeasedRow, reason: Reason) {
        self.dead_lettered.entry(row.queue).or_default().push((row.position, reason));
        self.timers.extend(row.timer.clone().map(|name| (row.queue, name, row.id)));
    }

    pub(super) fn fail(
        &mut self,
        position: i64,
        error: Option<String>,
        delivered: u32,
        due_at: Option<Micros>,
    ) {
        self.failures.push(Failure { position, error, delivered, due_at });
    }

    pub(super) fn snooze(&mut self, position: i64, due_at: Micros) {
        self.snoozes.push((position, due_at));
        self.scheduled.push(position);
    }

    /// Writes all changes.
    pub(super) async fn write(
        self,
        connection: &mut SqliteConnection,
        names: &SqliteNames,
        queues: &[Queue],
        now: Micros,
    ) -> Result<(), Error> {
        query_each(connection, names, &sql!(FAIL), &self.failures, |query, failure| {
            let query = query.bind(failure.delivered).bind(failure.error.clone()).bind(now);
            query.bind(failure.due_at).bind(failure.position)
        })
        .await?;
        query_each(connection, names, &sql!(SNOOZE), &self.snoozes, |query, (position, due_at)| {
            query.bind(*due_at).bind(*position)
        })
        .await?;
        query_each(connection, names, &sql!(END_TIMER), &self.timers, |query, (queue, name, id)| {
            query.bind(*queue).bind(name.clone()).bind(*id)
        })
        .await?;
        for queue in queues {
            if let Some(keep_for) = queue.policy.keep_for {
                self.archive(connection, names, queue.number, now, after(now, keep_for)).await?;
            }
            if let Some(dead_lettered) =
                self.dead_lettered.get(&queue.number).filter(|_| queue.policy.dead_letters)
            {
                let rows =
                    json(dead_lettered.iter().map(|(position, reason)| json!([position, reason.as_str()])));
                let sql = names.sql(&dead_letter_template());
                sql.query().bind(rows).bind(now).execute(&mut *connection).await.map_err(store_error)?;
            }
        }
        if !self.scheduled.is_empty() {
            execute_with_rows(connection, names, &schedule_template(), json(self.scheduled.iter().copied()))
                .await?;
        }
        let dead_lettered = self.dead_lettered.values().flatten().map(|(position, _)| position);
        let finished = self.finished.values().flatten().map(|(position, _)| position);
        let removed: Vec<i64> = finished.chain(dead_lettered).chain(&self.scheduled).copied().collect();
        execute_each_position(connection, names, &sql!(DELETE), &removed).await?;
        execute_each_position(connection, names, &sql!(RELEASE), &self.released).await?;
        end_lanes(connection, names, self.lanes).await
    }

    async fn archive(
        &self,
        connection: &mut SqliteConnection,
        names: &SqliteNames,
        queue: i64,
        now: Micros,
        expires_at: Micros,
    ) -> Result<(), Error> {
        let Some(finished) = self.finished.get(&queue) else { return Ok(()) };
        let rows = json(finished.iter().map(|(position, delivered)| json!([position, delivered])));
        let sql = names.sql(&archive_template());
        let query = sql.query().bind(rows).bind(now).bind(expires_at);
        query.execute(connection).await.map(|_| ()).map_err(store_error)
    }
}

async fn execute_with_rows(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    template: &Template,
    rows: String,
) -> Result<SqliteQueryResult, Error> {
    names.sql(template).query().bind(rows).execute(connection).await.map_err(store_error)
}

pub(super) const FAIL: &str = "update {ready} set attempts = attempts + 1, deliveries = deliveries + ?, isolated = 0, last_error = ?, \
    first_failed_at = coalesce(first_failed_at, ?), due_at = coalesce(?, due_at) where id = ?";

pub(super) const DELETE: &str = "delete from {ready} where id = ?";

pub(super) const RELEASE: &str = "update {ready} set token = null, lease_until = null, deliveries = max(deliveries - 1, 0) \
    where id = ?";

pub(super) const SNOOZE: &str =
    "update {ready} set deliveries = max(deliveries - 1, 0), due_at = ? where id = ?";

/// Another timer may have taken the name in the meantime.
pub(super) const END_TIMER: &str = "delete from {timer} where queue = ? and name = ? and message_id = ?";

/// Adds the deliveries that the claim did not count.
pub(super) fn archive_template() -> Template {
    sql!(
        "insert into {archive} (id, due_at, archived_at, expires_at, {body}) select r.id, due_at, ?2, ?3, {counted} \
         from (select value ->> 0 as position, value ->> 1 as delivered from json_each(?1)) j \
         cross join {ready} r on r.id = j.position",
        body = body(),
        counted = sql!(BODY, deliveries = sql!("deliveries + j.delivered"))
    )
}

pub(super) fn dead_letter_template() -> Template {
    sql!(
        "insert into {dead} (id, due_at, failed_at, reason, {body}) select r.id, due_at, ?2, j.reason, {body} \
         from (select value ->> 0 as position, value ->> 1 as reason from json_each(?1)) j \
         cross join {ready} r on r.id = j.position",
        body = body()
    )
}

pub(super) fn schedule_template() -> Template {
    sql!(
        "insert into {scheduled} (id, due_at, first_failed_at, {body}) select r.id, due_at, first_failed_at, {body} \
         from (select value as position from json_each(?1)) j cross join {ready} r on r.id = j.position",
        body = body()
    )
}

/// A lane that ends its turn goes to the tail of the ring. A lane whose turn goes on keeps its lease.
/// The values of each row go through `on conflict`: a join has a second query plan, which scans the lanes.
pub(super) const FREE_LANES: &str = "insert into {lane} (queue, key, turn, expired_leases) \
    select j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3 from json_each(?1) j where true \
    on conflict (queue, key) do update set turn = excluded.turn, expired_leases = excluded.expired_leases, token = null, \
      lease_until = null";

const BLOCK_LANE: &str = "update {lane} set turn = ?3, expired_leases = ?4, token = null, lease_until = null, due_at = ?5, \
    reason = ?6, error = ?7 where queue = ?1 and key = ?2";

async fn end_lanes(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    lanes: BTreeMap<(i64, String), LaneUpdate>,
) -> Result<(), Error> {
    let ended = lanes.values().filter(|lane| lane.status.is_some()).count();
    let mut tail = 0;
    if ended > 0 {
        (tail, _) = queues::draw_positions(connection, names, ended).await?;
    }
    let mut free = Vec::new();
    for ((queue, key), lane) in &lanes {
        match &lane.status {
            None if lane.has_left && lane.expired_leases == 0 => {
                let sql =
                    names.sql(&sql!(
                        "update {lane} set expired_leases = 0 where queue = ?1 and key = ?2 and expired_leases > 0"
                    ));
                sql.query().bind(queue).bind(key).execute(&mut *connection).await.map_err(store_error)?;
                continue;
            }
            None => continue,
            Some(LaneStatus::Free) => free.push(json!([queue, key, tail, lane.expired_leases])),
            Some(LaneStatus::Blocked { due_at, reason, error }) => {
                let sql = names.sql(&sql!(BLOCK_LANE));
                let query =
                    sql.query().bind(queue).bind(key).bind(tail).bind(lane.expired_leases).bind(due_at);
                let query = query.bind(reason.map(Reason::as_str)).bind(error);
                query.execute(&mut *connection).await.map_err(store_error)?;
            }
        }
        tail += 1;
    }
    if !free.is_empty() {
        execute_with_rows(connection, names, &sql!(FREE_LANES), Value::Array(free).to_string()).await?;
    }
    let left = lanes.iter().filter(|(_, lane)| lane.has_left);
    let left: Vec<_> = left.map(|((queue, key), _)| (*queue, key.as_str())).collect();
    lanes::close(connection, names, &left).await
}
