//! Claiming from unordered queues. `horizon.rs` explains where a claim starts and why.

use super::{
    Names,
    connections::Connections,
    error::store_error,
    horizon::{Horizon, Seen, Snapshot, Sweep},
    names::Sql,
    queues::Queue,
    returned::Returned,
    row,
};
use postrider_core::{Claimed, Error, Lease, LeaseToken};
use sqlx::{Row, postgres::PgRow};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// The statements, made once per store.
#[derive(Debug)]
pub(super) struct ClaimSql {
    one: Sql,
    many: Sql,
    again: Sql,
    look: Sql,
    oldest: Sql,
}

/// Leases rows by the `ctid`s that the same statement has locked: the only plan there is, whatever the statistics say.
pub(super) const TAKE: &str = "update {ready} m set token = $1, deliveries = m.deliveries + 1, \
        lease_until = (select clock_timestamp() + $2::float8 * interval '1 s') \
    where m.ctid = any(array(FOUND)) returning RETURNED";

/// What is free in the line of one queue.
const LINE: &str = "select r.ctid from {ready} r \
    where r.queue = QUEUE and r.id > START and r.lease_until <= (select clock_timestamp()) \
    order by r.queue, r.id limit LIMIT for update skip locked";

/// The same for several queues. Each row passes through a join, so a claim from one queue goes without.
const LINES: &str =
    "select s.ctid from unnest($3::smallint[], $4::bigint[]) q(queue, start), lateral (LINE) s limit LIMIT";

/// What waits in its place, by place.
const PLACES: &str = "select r.ctid from {ready} r where r.queue = $3::smallint and r.id = any($4::bigint[]) \
    and r.lease_until <= (select clock_timestamp()) for update skip locked";

/// What every claim returns of a message.
pub(super) const RETURNED: &str = "m.id, m.queue, m.staged_at, m.due_at, m.attempts, m.deliveries, COLUMNS";
/// Where the columns of the message begin.
const FIRST: usize = 6;
/// Where the header of a look has its snapshot; the last place and the age follow.
const SNAPSHOT: usize = FIRST + row::COLUMN_COUNT;

/// A look: what has come due is moved and leased in one go, the rest of the limit goes to what is ready. The first row is a
/// header: the lowest bound of the transactions that ended, the snapshot, the last place drawn, and the next xid by its age.
const LOOK: &str = "with look as materialized ( \
      select coalesce((select min(b.low) from unnest($6::text[], $7::bigint[]) b(x, low) \
             where pg_visible_in_snapshot(b.x::xid8, pg_current_snapshot())), 9223372036854775807) as low), \
    come as ( \
      delete from {later} l where l.ctid = any(array( \
        select s.ctid from unnest($3::smallint[]) q(queue), lateral ( \
          select w.ctid from {later} w where w.queue = q.queue and w.due_at <= (select clock_timestamp()) \
          order by w.queue, w.due_at, w.id limit $5 for update skip locked) s limit $5)) \
      returning l.*), \
    promoted as ( \
      insert into {ready} as m (staged_at, due_at, lease_until, message_id, token, attempts, deliveries, queue, ordered, \
        payload, event_type, content_type, key, tenant, subject, timer, headers, last_error) \
      select c.staged_at, c.due_at, clock_timestamp() + $2::float8 * interval '1 s', c.message_id, $1, c.attempts, \
        c.deliveries + 1, c.queue, c.ordered, c.payload, c.event_type, c.content_type, c.key, c.tenant, c.subject, \
        c.timer, c.headers, c.last_error \
      from come c order by c.due_at, c.id on conflict do nothing returning RETURNED), \
    taken as (TAKE) \
    select l.low, null::smallint, null::timestamptz, null::timestamptz, null::integer, null::integer, null::uuid, \
      null::bytea, null::text, null::text, null::text, null::text, null::text, null::text, null::text, \
      pg_current_snapshot()::text, coalesce(pg_sequence_last_value('{place}'), 0), age('3'::xid) from look l \
    union all select p.*, null, null, null from promoted p \
    union all select t.*, null, null, null from taken t";

const OLDEST: &str = "select (select r.id from {ready} r where r.queue = q.queue and r.id > q.floor \
    order by r.queue, r.id limit 1) from unnest($1::smallint[], $2::bigint[]) q(queue, floor)";

impl ClaimSql {
    pub(super) fn new(names: &Names) -> Self {
        let fill = |template: &str| {
            names.sql(&template.replace("RETURNED", RETURNED).replace("COLUMNS", row::COLUMNS))
        };
        let take = |found: &str, queue: &str, start: &str, limit: &str| {
            let found = found.replace("LINE", LINE).replace("QUEUE", queue);
            TAKE.replace("FOUND", &found.replace("START", start).replace("LIMIT", limit))
        };
        let look = take(
            LINES,
            "q.queue",
            "least(q.start, (select l.low from look l))",
            "greatest(0, $5 - (select count(*) from come))",
        );
        Self {
            one: fill(&take("LINE", "$3::smallint", "$4::bigint", "$5")),
            many: fill(&take(LINES, "q.queue", "q.start", "$5")),
            again: fill(&TAKE.replace("FOUND", PLACES)),
            look: fill(&LOOK.replace("TAKE", &look)),
            oldest: fill(OLDEST),
        }
    }

    /// The statements, for tests that read their plans.
    pub(super) fn texts(&self) -> [(&'static str, &str); 4] {
        [
            ("claim", self.one.as_str()),
            ("claim of many", self.many.as_str()),
            ("claim again", self.again.as_str()),
            ("look", self.look.as_str()),
        ]
    }
}

/// What one claim asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    pub(super) limit: usize,
    pub(super) lease_for: Duration,
    pub(super) token: LeaseToken,
}

/// A claimer of a set of unordered queues.
#[derive(Debug)]
pub(super) struct Claimer {
    sql: Arc<ClaimSql>,
    horizon: Mutex<Horizon>,
    /// One look at a time; the others go on with what is new.
    looking: tokio::sync::Mutex<()>,
    turn: AtomicUsize,
    sweeps: Sweeps,
    returned: Arc<Returned>,
}

/// Which sweeps a claimer makes. Anything but all of them loses messages: it is there for the tests to show that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sweeps {
    All,
    MarkOnly,
}

impl Claimer {
    pub(super) fn new(sql: Arc<ClaimSql>, queues: usize, sweeps: Sweeps, returned: Arc<Returned>) -> Self {
        Self {
            sql,
            horizon: Mutex::new(Horizon::new(queues, Instant::now())),
            looking: tokio::sync::Mutex::default(),
            turn: AtomicUsize::new(0),
            sweeps,
            returned,
        }
    }

    /// Claims from `queues`, which are those that this claimer was made for, in the same order.
    pub(super) async fn claim(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        want: Want,
    ) -> Result<Vec<(i64, Claimed)>, Error> {
        let claimed = self.claim_from(connections, queues, want).await;
        if claimed.is_err() {
            // What we remember may belong to a server that is gone.
            *self.horizon() = Horizon::new(queues.len(), Instant::now());
        }
        claimed
    }

    async fn claim_from(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        want: Want,
    ) -> Result<Vec<(i64, Claimed)>, Error> {
        let mut claimed = Vec::new();
        let mut looked = false;
        self.take_returned(connections, queues, want, &mut claimed).await?;
        let room = Want { limit: want.limit - claimed.len(), ..want };
        if room.limit > 0 && self.horizon().is_due(Instant::now()) {
            looked = self.look(connections, queues, room, false, &mut claimed).await?;
        }
        let room = Want { limit: want.limit - claimed.len(), ..want };
        if room.limit > 0 {
            self.take_new(connections, queues, room, &mut claimed).await?;
        }
        let room = Want { limit: want.limit - claimed.len(), ..want };
        if room.limit > 0 && (!looked || claimed.is_empty()) {
            let empty_handed = claimed.is_empty();
            self.look(connections, queues, room, empty_handed, &mut claimed).await?;
        }
        claimed.sort_unstable_by_key(|(place, _)| *place);
        Ok(claimed)
    }

    /// Claims the retries of this process that have waited in their places.
    async fn take_returned(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        want: Want,
        claimed: &mut Vec<(i64, Claimed)>,
    ) -> Result<(), Error> {
        for index in self.order(queues.len()) {
            let number = queues[index].number;
            let places = self.returned.take_due(number, want.limit - claimed.len(), Instant::now());
            if !places.is_empty() {
                let lease = want.lease_for.as_secs_f64();
                let query = self.sql.again.query().bind(want.token.as_uuid()).bind(lease);
                let rows = connections.fetch_all(query.bind(number).bind(places)).await?;
                collect(&rows, queues, want.token, claimed)?;
            }
        }
        Ok(())
    }

    /// Claims what lies above the marks.
    async fn take_new(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        want: Want,
        claimed: &mut Vec<(i64, Claimed)>,
    ) -> Result<(), Error> {
        let order = self.order(queues.len());
        let marks = self.horizon().marks();
        let sql = if queues.len() == 1 { &self.sql.one } else { &self.sql.many };
        let query = sql.query().bind(want.token.as_uuid()).bind(want.lease_for.as_secs_f64());
        let query = match order[..] {
            [index] => query.bind(queues[index].number).bind(marks[index]),
            _ => query
                .bind(in_order(&order, |index| queues[index].number))
                .bind(in_order(&order, |index| marks[index])),
        };
        let rows = connections.fetch_all(query.bind(limit(want.limit))).await?;
        let last = collect(&rows, queues, want.token, claimed)?;
        self.horizon().passed(&last);
        Ok(())
    }

    /// Looks back. Answers whether it did: one look at a time is enough.
    async fn look(
        &self,
        connections: &Connections,
        queues: &[Arc<Queue>],
        want: Want,
        empty_handed: bool,
        claimed: &mut Vec<(i64, Claimed)>,
    ) -> Result<bool, Error> {
        if self.sweeps == Sweeps::MarkOnly {
            return Ok(false);
        }
        let Ok(_guard) = self.looking.try_lock() else { return Ok(false) };
        let began = Instant::now();
        let look = self.horizon().look(empty_handed, began);
        let order = self.order(queues.len());
        let query = self
            .sql
            .look
            .query()
            .bind(want.token.as_uuid())
            .bind(want.lease_for.as_secs_f64())
            .bind(in_order(&order, |index| queues[index].number))
            .bind(in_order(&order, |index| look.starts[index]))
            .bind(limit(want.limit))
            .bind(&look.xids)
            .bind(&look.lows);
        let rows = connections.fetch_all(query).await?;
        let Some((header, rows)) = rows.split_first() else { return Ok(true) };
        let last = collect(rows, queues, want.token, claimed)?;
        let seen = Seen {
            snapshot: snapshot(header, SNAPSHOT, SNAPSHOT + 2)?,
            last_place: header.try_get(SNAPSHOT + 1).map_err(store_error)?,
            low: header.try_get(0).map_err(store_error)?,
            last,
            full: rows.len() >= want.limit,
            took: began.elapsed(),
        };
        let swept = look.sweep != Sweep::Late && !seen.full;
        self.horizon().looked(&look, seen, want.lease_for, Instant::now());
        if swept {
            self.raise_floors(connections, queues).await?;
        }
        Ok(true)
    }

    /// After a sweep: where is the oldest live row? The next sweep starts there.
    async fn raise_floors(&self, connections: &Connections, queues: &[Arc<Queue>]) -> Result<(), Error> {
        let floors = self.horizon().floors();
        let numbers: Vec<i16> = queues.iter().map(|queue| queue.number).collect();
        let rows = connections.fetch_all(self.sql.oldest.query().bind(numbers).bind(floors)).await?;
        let oldest: Result<Vec<Option<i64>>, _> = rows.iter().map(|row| row.try_get(0)).collect();
        let floors: Vec<_> = oldest.map_err(store_error)?.into_iter().map(|id| id.map(|id| id - 1)).collect();
        self.horizon().raise_floors(&floors);
        Ok(())
    }

    /// For each queue: where the next claim starts.
    pub(super) fn marks(&self) -> Vec<i64> {
        self.horizon().marks()
    }

    /// The queues take turns at being first, since the limit may be used up before the last.
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

pub(super) fn snapshot(row: &PgRow, text: usize, age: usize) -> Result<Snapshot, Error> {
    let text: &str = row.try_get(text).map_err(store_error)?;
    let age: i32 = row.try_get(age).map_err(store_error)?;
    Snapshot::parse(text, age).ok_or_else(|| Error::Other(format!("unreadable snapshot {text:?}").into()))
}

/// Adds the rows to what was claimed. Answers, for each queue, the last place among them.
fn collect(
    rows: &[PgRow],
    queues: &[Arc<Queue>],
    token: LeaseToken,
    claimed: &mut Vec<(i64, Claimed)>,
) -> Result<Vec<Option<i64>>, Error> {
    let mut last = vec![None; queues.len()];
    claimed.reserve(rows.len());
    for row in rows {
        let (index, place, one) = read(row, queues, token).map_err(store_error)?;
        last[index] = last[index].max(Some(place));
        claimed.push((place, one));
    }
    Ok(last)
}

pub(super) fn read(
    row: &PgRow,
    queues: &[Arc<Queue>],
    token: LeaseToken,
) -> Result<(usize, i64, Claimed), sqlx::Error> {
    let place: i64 = row.try_get_unchecked(0)?;
    let number: i16 = row.try_get_unchecked(1)?;
    let index = queues.iter().position(|queue| queue.number == number);
    let index =
        index.ok_or_else(|| sqlx::Error::Protocol(format!("claimed from queue {number}, not asked for")))?;
    let message = row::message(row, FIRST, &queues[index].name)?;
    let id = message.id().ok_or(sqlx::Error::RowNotFound)?;
    let mut lease = Lease::new(queues[index].name.clone(), id, token);
    if message.timer().is_none() {
        lease = lease.at_place(place);
    }
    Ok((
        index,
        place,
        Claimed {
            message,
            lease,
            staged_at: row.try_get_unchecked::<row::Moment, _>(2)?.0,
            due_at: row.try_get_unchecked::<row::Moment, _>(3)?.0,
            attempts: count(row.try_get_unchecked(4)?),
            deliveries: count(row.try_get_unchecked(5)?),
        },
    ))
}

pub(super) fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}
