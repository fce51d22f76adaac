//! Claiming from unordered queues. `horizon.rs` explains where a claim starts and why.

use super::{
    PostgresNames,
    connections::Connections,
    error::store_error,
    horizon::{Horizon, LookBackResult, Snapshot, Sweep},
    in_place_retries::InPlaceRetries,
    names::Sql,
    queues::Queue,
    row,
};
use crate::template::Template;
use postrider_core::{ClaimedMessage, Error, Lease, LeaseToken};
use sqlx::{Row, postgres::PgRow};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// The statements, rendered once per store.
#[derive(Debug)]
pub(super) struct ClaimSql {
    one: Sql,
    many: Sql,
    by_position: Sql,
    look_back: Sql,
    oldest: Sql,
}

/// Leases rows by the `ctid`s that the same statement has locked: the only possible plan, whatever the statistics say.
const TAKE: &str = "update {ready} m set token = $1, deliveries = m.deliveries + 1, \
        lease_until = (select clock_timestamp() + $2::float8 * interval '1 s') \
    where m.ctid = any(array({rows})) returning {returned}";

/// The rows that may be claimed without their key. The policy that a claimer knows may be a second old, and messages of a queue that
/// became ordered meanwhile belong to their lanes. Only such rows look the queue up.
const NOT_IN_A_LANE: &str = "(not r.ordered or (select not k.ordered from {queue} k where k.id = {number}))";

/// The free rows of one queue, in the order of their positions.
const QUEUE_ROWS: &str = "select r.ctid from {ready} r \
    where r.queue = {number} and r.id > {start} and r.lease_until <= (select clock_timestamp()) and {not_in_a_lane} \
    order by r.queue, r.id limit {limit} for update skip locked";

/// The free rows of several queues. Each row passes through a join, which a claim from one queue avoids.
const QUEUES: &str = "select s.ctid from unnest($3::smallint[], $4::bigint[]) q(queue, start), lateral ({rows}) s limit {limit}";

/// Retries that wait in place, by their positions. A probe for each: `id = any(…)` might be a filter on the whole queue.
const POSITIONS: &str = "select l.ctid from unnest($4::bigint[]) u(id), lateral ( \
      select r.ctid from {ready} r where r.queue = $3::smallint and r.id = u.id \
        and r.lease_until <= (select clock_timestamp()) and {not_in_a_lane} for update skip locked) l";

/// The columns that every claim returns.
const RETURNED: &str = "m.id, m.queue, m.staged_at, m.due_at, m.attempts, m.deliveries, m.isolated, m.lease_until, \
    m.first_failed_at, {columns}";
/// The index of the first column of the message.
const FIRST: usize = 9;
/// The index of the snapshot in the header of a look-back; the last position, the age and the start of the server follow.
const SNAPSHOT: usize = FIRST + row::COLUMN_COUNT;

/// A look-back: moves due messages to `ready` and leases them in one statement; the rest of the limit goes to ready messages. The
/// first row is a header: the lowest bound of the transactions that ended, the snapshot, the last position drawn, the next xid by its
/// age, and when the server started. The messages that came due follow, marked by a zero in the column of the last position.
const LOOK_BACK: &str = "with look as materialized ( \
      select coalesce((select min(b.low) from unnest($6::text[], $7::bigint[]) b(x, low) \
             where pg_visible_in_snapshot(b.x::xid8, pg_current_snapshot())), 9223372036854775807) as low), \
    come as ( \
      delete from {scheduled} l where l.ctid = any(array( \
        select s.ctid from unnest($3::smallint[]) q(queue), lateral ( \
          select w.ctid from {scheduled} w where w.queue = q.queue and w.due_at <= (select clock_timestamp()) \
          order by w.queue, w.due_at, w.id limit $5 for update skip locked) s limit $5)) \
      returning l.*), \
    promoted as ( \
      insert into {ready} as m (staged_at, due_at, lease_until, message_id, token, attempts, deliveries, queue, ordered, \
        first_failed_at, payload, event_type, content_type, key, tenant, subject, timer, headers, last_error) \
      select c.staged_at, c.due_at, clock_timestamp() + $2::float8 * interval '1 s', c.message_id, $1, c.attempts, \
        c.deliveries + 1, c.queue, c.ordered, c.first_failed_at, c.payload, c.event_type, c.content_type, c.key, c.tenant, c.subject, \
        c.timer, c.headers, c.last_error \
      from come c order by c.due_at, c.id on conflict (message_id, (queue::integer)) do nothing returning {returned}), \
    taken as ({take}) \
    select l.low, null::smallint, null::timestamptz, null::timestamptz, null::integer, null::integer, null::smallint, \
      null::timestamptz, null::timestamptz, null::uuid, \
      null::bytea, null::text, null::text, null::text, null::text, null::text, null::text, null::text, \
      pg_current_snapshot()::text, coalesce(pg_sequence_last_value('{message_position}'), 0), age('3'::xid), \
      pg_postmaster_start_time() from look l \
    union all select p.*, null, 0, null, null from promoted p \
    union all select t.*, null, null, null, null from taken t";

const OLDEST: &str = "select (select r.id from {ready} r where r.queue = q.queue and r.id > q.floor \
    order by r.queue, r.id limit 1) from unnest($1::smallint[], $2::bigint[]) q(queue, floor)";

fn not_in_a_lane(number: &Template) -> Template {
    sql!(NOT_IN_A_LANE, number = number.clone())
}

/// The lease of these rows.
pub(super) fn take(rows: &Template) -> Template {
    sql!(TAKE, rows, returned = returned())
}

fn returned() -> Template {
    sql!(RETURNED, columns = sql!(row::COLUMNS))
}

impl ClaimSql {
    pub(super) fn new(names: &PostgresNames) -> Self {
        let rows = |number: Template, start: Template, limit: Template| {
            sql!(QUEUE_ROWS, not_in_a_lane = not_in_a_lane(&number), number, start, limit)
        };
        let of_one = rows(sql!("$3::smallint"), sql!("$4::bigint"), sql!("$5"));
        let of_many = |start: Template, limit: Template| {
            let rows = rows(sql!("q.queue"), start, limit.clone());
            take(&sql!(QUEUES, rows, limit))
        };
        let look = of_many(
            sql!("least(q.start, (select l.low from look l))"),
            sql!("greatest(0, $5 - (select count(*) from come))"),
        );
        Self {
            one: names.sql(&take(&of_one)),
            many: names.sql(&of_many(sql!("q.start"), sql!("$5"))),
            by_position: names
                .sql(&take(&sql!(POSITIONS, not_in_a_lane = not_in_a_lane(&sql!("$3::smallint"))))),
            look_back: names.sql(&sql!(LOOK_BACK, take = look, returned = returned())),
            oldest: names.sql(&sql!(OLDEST)),
        }
    }

    /// The statements, for tests that read their plans.
    pub(super) fn texts(&self) -> [(&'static str, &str); 4] {
        [
            ("claim", self.one.as_str()),
            ("claim of many", self.many.as_str()),
            ("claim by position", self.by_position.as_str()),
            ("look back", self.look_back.as_str()),
        ]
    }
}

/// The parameters of one claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClaimSpec {
    pub(super) limit: usize,
    pub(super) lease_for: Duration,
    pub(super) token: LeaseToken,
}

/// A claimer of a set of unordered queues.
#[derive(Debug)]
pub(super) struct Claimer {
    sql: Arc<ClaimSql>,
    horizon: Mutex<Horizon>,
    /// One look-back at a time; the other claims go on with new rows.
    looking_back: tokio::sync::Mutex<()>,
    turn: AtomicUsize,
    sweeps: Sweeps,
    retries: Arc<InPlaceRetries>,
}

/// The sweeps that a claimer makes. Negative controls leave them out, and miss late commits and expired leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sweeps {
    All,
    LowWaterOnly,
}

impl Claimer {
    pub(super) fn new(
        sql: Arc<ClaimSql>,
        queues: usize,
        sweeps: Sweeps,
        retries: Arc<InPlaceRetries>,
    ) -> Self {
        Self {
            sql,
            horizon: Mutex::new(Horizon::new(queues, Instant::now())),
            looking_back: tokio::sync::Mutex::default(),
            turn: AtomicUsize::new(0),
            sweeps,
            retries,
        }
    }

    /// Claims from `queues`, which must be those that this claimer was created for, in the same order.
    pub(super) async fn claim(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        spec: ClaimSpec,
    ) -> Result<Vec<(i64, ClaimedMessage)>, Error> {
        let mut claimed = Vec::new();
        if let Err(error) = self.claim_from(connections, queues, spec, &mut claimed).await {
            // The cached horizon may be from before a failover.
            *self.horizon() = Horizon::new(queues.len(), Instant::now());
            // Messages that an earlier statement has leased are delivered; the next claim meets the error again.
            if claimed.is_empty() {
                return Err(error);
            }
        }
        claimed.sort_unstable_by_key(|(position, _)| *position);
        Ok(claimed)
    }

    async fn claim_from(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        spec: ClaimSpec,
        claimed: &mut Vec<(i64, ClaimedMessage)>,
    ) -> Result<(), Error> {
        let mut looked_back = false;
        self.take_in_place_retries(connections, queues, spec, claimed).await?;
        let rest = ClaimSpec { limit: spec.limit - claimed.len(), ..spec };
        if rest.limit > 0 && self.horizon().is_due(Instant::now()) {
            looked_back = self.look_back(connections, queues, rest, false, claimed).await?;
        }
        let rest = ClaimSpec { limit: spec.limit - claimed.len(), ..spec };
        if rest.limit > 0 {
            self.take_new(connections, queues, rest, claimed).await?;
        }
        let rest = ClaimSpec { limit: spec.limit - claimed.len(), ..spec };
        if rest.limit > 0 && (!looked_back || claimed.is_empty()) {
            let found_nothing = claimed.is_empty();
            self.look_back(connections, queues, rest, found_nothing, claimed).await?;
        }
        Ok(())
    }

    /// Claims the retries of this process that have waited in place and are due.
    async fn take_in_place_retries(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        spec: ClaimSpec,
        claimed: &mut Vec<(i64, ClaimedMessage)>,
    ) -> Result<(), Error> {
        for index in self.order(queues.len()) {
            let number = queues[index].number;
            let positions = self.retries.take_due(number, spec.limit - claimed.len(), Instant::now());
            if !positions.is_empty() {
                let lease = spec.lease_for.as_secs_f64();
                let query = self.sql.by_position.query().bind(spec.token.as_uuid()).bind(lease);
                let rows = connections.fetch_all(query.bind(number).bind(positions)).await?;
                collect(&rows, queues, spec, claimed)?;
            }
        }
        Ok(())
    }

    /// Claims rows above the low-water marks.
    async fn take_new(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        spec: ClaimSpec,
        claimed: &mut Vec<(i64, ClaimedMessage)>,
    ) -> Result<(), Error> {
        let order = self.order(queues.len());
        let low_water_marks = self.horizon().low_water_marks();
        let sql = if queues.len() == 1 { &self.sql.one } else { &self.sql.many };
        let query = sql.query().bind(spec.token.as_uuid()).bind(spec.lease_for.as_secs_f64());
        let query = match order[..] {
            [index] => query.bind(queues[index].number).bind(low_water_marks[index]),
            _ => query
                .bind(in_order(&order, |index| queues[index].number))
                .bind(in_order(&order, |index| low_water_marks[index])),
        };
        let rows = connections.fetch_all(query.bind(limit(spec.limit))).await?;
        let last = collect(&rows, queues, spec, claimed)?;
        self.horizon().advance(&last);
        Ok(())
    }

    /// Looks back. Returns whether it did: one look-back at a time is enough.
    async fn look_back(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        spec: ClaimSpec,
        found_nothing: bool,
        claimed: &mut Vec<(i64, ClaimedMessage)>,
    ) -> Result<bool, Error> {
        if self.sweeps == Sweeps::LowWaterOnly {
            return Ok(false);
        }
        let Ok(_guard) = self.looking_back.try_lock() else { return Ok(false) };
        let began = Instant::now();
        let look = self.horizon().plan_look_back(found_nothing, began);
        let order = self.order(queues.len());
        let query = self
            .sql
            .look_back
            .query()
            .bind(spec.token.as_uuid())
            .bind(spec.lease_for.as_secs_f64())
            .bind(in_order(&order, |index| queues[index].number))
            .bind(in_order(&order, |index| look.starts[index]))
            .bind(limit(spec.limit))
            .bind(&look.xids)
            .bind(&look.lows);
        let rows = connections.fetch_all(query).await?;
        let Some((header, rows)) = rows.split_first() else { return Ok(true) };
        let is_promoted = |row: &PgRow| matches!(row.try_get::<Option<i64>, _>(SNAPSHOT + 1), Ok(Some(_)));
        let (promoted, taken) = rows.split_at(rows.partition_point(is_promoted));
        // Messages that came due have the newest positions of all: they say nothing about how far the queue was read.
        collect(promoted, queues, spec, claimed)?;
        let last = collect(taken, queues, spec, claimed)?;
        let result = LookBackResult {
            snapshot: snapshot(header, SNAPSHOT, SNAPSHOT + 2, SNAPSHOT + 3)?,
            last_position: header.try_get(SNAPSHOT + 1).map_err(store_error)?,
            low: header.try_get(0).map_err(store_error)?,
            last,
            full: rows.len() >= spec.limit,
            took: began.elapsed(),
        };
        let swept = look.sweep != Sweep::Late && !result.full;
        self.horizon().record_look_back(&look, result, spec.lease_for, Instant::now());
        if swept {
            self.raise_floors(connections, queues).await?;
        }
        Ok(true)
    }

    /// After a sweep: finds the oldest live row, at which the next sweep starts.
    async fn raise_floors(&self, connections: &Connections, queues: &[Arc<Queue>]) -> Result<(), Error> {
        let floors = self.horizon().floors();
        let numbers: Vec<i16> = queues.iter().map(|queue| queue.number).collect();
        let rows = connections.fetch_all(self.sql.oldest.query().bind(numbers).bind(floors)).await?;
        let oldest: Result<Vec<Option<i64>>, _> = rows.iter().map(|row| row.try_get(0)).collect();
        let floors: Vec<_> = oldest.map_err(store_error)?.into_iter().map(|id| id.map(|id| id - 1)).collect();
        self.horizon().raise_floors(&floors);
        Ok(())
    }

    /// For each queue: the low-water mark, where the next claim starts.
    pub(super) fn low_water_marks(&self) -> Vec<i64> {
        self.horizon().low_water_marks()
    }

    /// Rotates the first queue, so that the last ones are not starved when the limit is used up before them.
    fn order(&self, queues: usize) -> Vec<usize> {
        let first = if queues > 1 { self.turn.fetch_add(1, Ordering::Relaxed) } else { 0 };
        (0..queues).map(|index| (first + index) % queues).collect()
    }

    fn horizon(&self) -> std::sync::MutexGuard<'_, Horizon> {
        self.horizon.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn in_order<T>(order: &[usize], value: impl Fn(usize) -> T) -> Vec<T> {
    order.iter().map(|index| value(*index)).collect()
}

pub(super) fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// The snapshot in these columns of a header.
pub(super) fn snapshot(row: &PgRow, text: usize, age: usize, started_at: usize) -> Result<Snapshot, Error> {
    let text: &str = row.try_get(text).map_err(store_error)?;
    let age: i32 = row.try_get(age).map_err(store_error)?;
    let started_at = row.try_get_unchecked::<row::Moment, _>(started_at).map_err(store_error)?.0;
    Snapshot::parse(text, age, started_at)
        .ok_or_else(|| Error::Other(format!("unreadable snapshot {text:?}").into()))
}

/// Adds the rows to `claimed`. Returns, for each queue, the last position among them.
fn collect(
    rows: &[PgRow],
    queues: &[Arc<Queue>],
    spec: ClaimSpec,
    claimed: &mut Vec<(i64, ClaimedMessage)>,
) -> Result<Vec<Option<i64>>, Error> {
    let mut last = vec![None; queues.len()];
    claimed.reserve(rows.len());
    for row in rows {
        let (index, position, one) = read(row, queues, spec).map_err(store_error)?;
        last[index] = last[index].max(Some(position));
        claimed.push((position, one));
    }
    Ok(last)
}

pub(super) fn read(
    row: &PgRow,
    queues: &[Arc<Queue>],
    spec: ClaimSpec,
) -> Result<(usize, i64, ClaimedMessage), sqlx::Error> {
    let moment = |column: usize| row.try_get_unchecked::<row::Moment, _>(column).map(|at| at.0);
    let position: i64 = row.try_get_unchecked(0)?;
    let number: i16 = row.try_get_unchecked(1)?;
    let index = queues.iter().position(|queue| queue.number == number);
    let index =
        index.ok_or_else(|| sqlx::Error::Protocol(format!("claimed from queue {number}, not asked for")))?;
    let message = row::message(row, FIRST, &queues[index].name)?;
    let id = message.id().ok_or(sqlx::Error::RowNotFound)?;
    let mut lease = Lease::new(queues[index].name.clone(), id, spec.token);
    if message.timer().is_none() {
        lease = lease.at_position(position);
    }
    Ok((
        index,
        position,
        ClaimedMessage {
            message,
            lease,
            staged_at: moment(2)?,
            due_at: moment(3)?,
            attempts: count(row.try_get_unchecked(4)?),
            deliveries: count(row.try_get_unchecked(5)?),
            isolated: count(row.try_get_unchecked::<Option<i16>, _>(6)?.unwrap_or(0).into()),
            claimed_at: moment(7)? - spec.lease_for,
            first_failed_at: row.try_get_unchecked::<Option<row::Moment>, _>(8)?.map(|at| at.0),
        },
    ))
}

pub(super) fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}
