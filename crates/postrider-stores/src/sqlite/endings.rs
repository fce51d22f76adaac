//! What a settlement has decided, and writing it: a few statements, whatever the number of messages.
//!
//! Moves copy a row to its new room and then delete it from `ready`. The delete runs only when the copy did, since all of it is
//! one transaction.

use super::{
    Names,
    each::{each, each_place},
    error::store_error,
    lanes,
    leases::{LaneState, Stand},
    moment::{Micros, NEVER, after},
    queues::{self, Queue},
    row::{BODY, json},
};
use postrider_core::{Error, Reason};
use serde_json::{Value, json};
use sqlx::{SqliteConnection, sqlite::SqliteQueryResult};
use std::collections::{BTreeMap, btree_map::Entry};
use uuid::Uuid;

/// What becomes of messages, by their places, and of lanes.
#[derive(Debug, Default)]
pub(super) struct Endings {
    /// By queue: the place, and the deliveries that the claim did not count.
    finished: BTreeMap<i64, Vec<(i64, u32)>>,
    buried: BTreeMap<i64, Vec<(i64, Reason)>>,
    /// To `later`, until they are due.
    pub(super) waits: Vec<i64>,
    /// Handed back, uncounted.
    pub(super) released: Vec<i64>,
    failures: Vec<Failure>,
    /// Put off, uncounted: the place and the time.
    snoozes: Vec<(i64, Micros)>,
    /// The timers that end, each with its message.
    timers: Vec<(i64, String, Uuid)>,
    lanes: BTreeMap<(i64, String), LaneEnd>,
}

#[derive(Debug)]
struct Failure {
    place: i64,
    error: Option<String>,
    delivered: u32,
    due_at: Option<Micros>,
}

/// What becomes of a lane.
#[derive(Debug)]
pub(super) struct LaneEnd {
    pub(super) head: i64,
    pub(super) lapses: u32,
    /// Messages have left it: it may be empty.
    pub(super) has_left: bool,
    /// How it goes on, if its turn is over.
    pub(super) run: Option<Run>,
}

/// How a lane goes on after a turn.
#[derive(Debug)]
pub(super) enum Run {
    Free,
    Blocked { due_at: Micros, reason: Option<Reason>, error: Option<String> },
}

impl Run {
    pub(super) fn blocked(due_at: Option<Micros>, reason: Option<Reason>, error: Option<String>) -> Self {
        Self::Blocked { due_at: due_at.unwrap_or(NEVER), reason, error }
    }
}

impl Endings {
    pub(super) fn has_ended(&self, queue: i64, key: &str) -> bool {
        self.lanes.get(&(queue, key.to_owned())).is_some_and(|lane| lane.run.is_some())
    }

    pub(super) fn lane(&mut self, queue: i64, state: &LaneState) -> &mut LaneEnd {
        match self.lanes.entry((queue, state.key.clone())) {
            Entry::Occupied(lane) => lane.into_mut(),
            Entry::Vacant(lane) => {
                lane.insert(LaneEnd { head: state.head, lapses: state.lapses, has_left: false, run: None })
            }
        }
    }

    pub(super) fn finish(&mut self, stand: &Stand, delivered: u32) {
        self.finished.entry(stand.queue).or_default().push((stand.place, delivered));
        self.timers.extend(stand.timer.clone().map(|name| (stand.queue, name, stand.id)));
    }

    pub(super) fn bury(&mut self, stand: &Stand, reason: Reason) {
        self.buried.entry(stand.queue).or_default().push((stand.place, reason));
        self.timers.extend(stand.timer.clone().map(|name| (stand.queue, name, stand.id)));
    }

    pub(super) fn fail(&mut self, place: i64, error: Option<String>, delivered: u32, due_at: Option<Micros>) {
        self.failures.push(Failure { place, error, delivered, due_at });
    }

    pub(super) fn snooze(&mut self, place: i64, due_at: Micros) {
        self.snoozes.push((place, due_at));
        self.waits.push(place);
    }

    /// Writes all of it.
    pub(super) async fn write(
        self,
        connection: &mut SqliteConnection,
        names: &Names,
        queues: &[Queue],
        now: Micros,
    ) -> Result<(), Error> {
        each(connection, names, FAIL, &self.failures, |query, failure| {
            let query = query.bind(failure.delivered).bind(failure.error.clone());
            query.bind(failure.due_at).bind(failure.place)
        })
        .await?;
        each(connection, names, SNOOZE, &self.snoozes, |query, (place, due_at)| {
            query.bind(*due_at).bind(*place)
        })
        .await?;
        each(connection, names, END_TIMER, &self.timers, |query, (queue, name, id)| {
            query.bind(*queue).bind(name.clone()).bind(*id)
        })
        .await?;
        for queue in queues {
            if let Some(keep_for) = queue.policy.keep_for {
                self.archive(connection, names, queue.number, now, after(now, keep_for)).await?;
            }
            if let Some(buried) = self.buried.get(&queue.number).filter(|_| queue.policy.dead_letters) {
                let rows = json(buried.iter().map(|(place, reason)| json!([place, reason.as_str()])));
                let sql = names.sql(&bury_template());
                sql.query().bind(rows).bind(now).execute(&mut *connection).await.map_err(store_error)?;
            }
        }
        if !self.waits.is_empty() {
            run(connection, names, &wait_template(), json(self.waits.iter().copied())).await?;
        }
        let buried = self.buried.values().flatten().map(|(place, _)| place);
        let finished = self.finished.values().flatten().map(|(place, _)| place);
        let gone: Vec<i64> = finished.chain(buried).chain(&self.waits).copied().collect();
        each_place(connection, names, DELETE, &gone).await?;
        each_place(connection, names, RELEASE, &self.released).await?;
        end_lanes(connection, names, self.lanes).await
    }

    async fn archive(
        &self,
        connection: &mut SqliteConnection,
        names: &Names,
        queue: i64,
        now: Micros,
        expires_at: Micros,
    ) -> Result<(), Error> {
        let Some(finished) = self.finished.get(&queue) else { return Ok(()) };
        let rows = json(finished.iter().map(|(place, delivered)| json!([place, delivered])));
        let sql = names.sql(&archive_template());
        let query = sql.query().bind(rows).bind(now).bind(expires_at);
        query.execute(connection).await.map(|_| ()).map_err(store_error)
    }
}

async fn run(
    connection: &mut SqliteConnection,
    names: &Names,
    template: &str,
    rows: String,
) -> Result<SqliteQueryResult, Error> {
    names.sql(template).query().bind(rows).execute(connection).await.map_err(store_error)
}

pub(super) const FAIL: &str = "update {ready} set attempts = attempts + 1, deliveries = deliveries + ?, last_error = ?, \
    due_at = coalesce(?, due_at) where id = ?";

pub(super) const DELETE: &str = "delete from {ready} where id = ?";

pub(super) const RELEASE: &str = "update {ready} set token = null, lease_until = null, deliveries = max(deliveries - 1, 0) \
    where id = ?";

pub(super) const SNOOZE: &str =
    "update {ready} set deliveries = max(deliveries - 1, 0), due_at = ? where id = ?";

/// Another timer may have taken the name since.
pub(super) const END_TIMER: &str = "delete from {timer} where queue = ? and name = ? and message_id = ?";

/// The deliveries that the claim did not count are counted on the way.
pub(super) fn archive_template() -> String {
    let counted = BODY.replace("deliveries", "deliveries + j.delivered");
    format!(
        "insert into {{archive}} (id, due_at, archived_at, expires_at, {BODY}) select r.id, due_at, ?2, ?3, {counted} \
         from (select value ->> 0 as place, value ->> 1 as delivered from json_each(?1)) j \
         cross join {{ready}} r on r.id = j.place"
    )
}

pub(super) fn bury_template() -> String {
    format!(
        "insert into {{dead}} (id, due_at, failed_at, reason, {BODY}) select r.id, due_at, ?2, j.reason, {BODY} \
         from (select value ->> 0 as place, value ->> 1 as reason from json_each(?1)) j \
         cross join {{ready}} r on r.id = j.place"
    )
}

pub(super) fn wait_template() -> String {
    format!(
        "insert into {{later}} (id, due_at, {BODY}) select r.id, due_at, {BODY} \
         from (select value as place from json_each(?1)) j cross join {{ready}} r on r.id = j.place"
    )
}

/// A lane that ends its turn goes to the ring's tail. One whose turn goes on keeps its lease.
/// A value for each row goes through `on conflict`: a join has a second plan, which scans the lanes.
pub(super) const FREE_LANES: &str = "insert into {lane} (queue, key, turn_at, lapses) \
    select j.value ->> 0, j.value ->> 1, j.value ->> 2, j.value ->> 3 from json_each(?1) j where true \
    on conflict (queue, key) do update set turn_at = excluded.turn_at, lapses = excluded.lapses, token = null, \
      lease_until = null";

const BLOCK_LANE: &str = "update {lane} set turn_at = ?3, lapses = ?4, token = null, lease_until = null, due_at = ?5, \
    reason = ?6, error = ?7 where queue = ?1 and key = ?2";

async fn end_lanes(
    connection: &mut SqliteConnection,
    names: &Names,
    lanes: BTreeMap<(i64, String), LaneEnd>,
) -> Result<(), Error> {
    let over = lanes.values().filter(|lane| lane.run.is_some()).count();
    let mut tail = 0;
    if over > 0 {
        (tail, _) = queues::draw(connection, names, over).await?;
    }
    let mut free = Vec::new();
    for ((queue, key), lane) in &lanes {
        match &lane.run {
            None if lane.has_left && lane.lapses == 0 => {
                let sql =
                    names.sql("update {lane} set lapses = 0 where queue = ?1 and key = ?2 and lapses > 0");
                sql.query().bind(queue).bind(key).execute(&mut *connection).await.map_err(store_error)?;
                continue;
            }
            None => continue,
            Some(Run::Free) => free.push(json!([queue, key, tail, lane.lapses])),
            Some(Run::Blocked { due_at, reason, error }) => {
                let sql = names.sql(BLOCK_LANE);
                let query = sql.query().bind(queue).bind(key).bind(tail).bind(lane.lapses).bind(due_at);
                let query = query.bind(reason.map(Reason::as_str)).bind(error);
                query.execute(&mut *connection).await.map_err(store_error)?;
            }
        }
        tail += 1;
    }
    if !free.is_empty() {
        run(connection, names, FREE_LANES, Value::Array(free).to_string()).await?;
    }
    let left = lanes.iter().filter(|(_, lane)| lane.has_left);
    let left: Vec<_> = left.map(|((queue, key), _)| (*queue, key.as_str())).collect();
    lanes::close(connection, names, &left).await
}
