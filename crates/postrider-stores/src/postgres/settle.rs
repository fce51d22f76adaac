//! Settling claims: any mix of settlements in one statement, each guarded by its token.
//!
//! The statement is composed of the endings that occur in a batch, so that a batch of successes pays for nothing else.
//! Rows are found by `message_id = ANY`, the leading column of one index, so there is one plan. A batch of one claim
//! compares one token; a mixed batch finds each row's own token by binary search in the sorted ids (`width_bucket`), so
//! that a stale token never passes for another one of the same batch. The queue is compared as `queue + 0`, so that the
//! planner does not consider a second index.
//!
//! Per-row values come through `unnest` and a full join, which has no nested loop and so no quadratic cost, and every row that is
//! deleted is stored again: a missing value violates a NOT NULL constraint and fails the statement, and with it the delete.
//!
//! The most common batch, one claim whose messages were all delivered, has statements of its own (`delivered.rs`).

use super::{
    PostgresNames,
    connections::Fetch,
    delivered::{DeliveredBatch, DeliveredSql},
    error::store_error,
    in_place_retries::InPlaceRetries,
    lane_settle::LaneBatch,
    names::Sql,
    queues::QueueMap,
    settle_batch::{Batch, Ending, RowSettlement, SettleStep},
};
use crate::template::Template;
use postrider_core::{Error, Lease, LeaseSettlement, QueueName};
use sqlx::{
    Postgres, Row,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use uuid::Uuid;

/// The statements, each rendered when first needed.
#[derive(Debug, Default)]
pub(super) struct SettleSql {
    mixed: Mutex<HashMap<StatementShape, Sql>>,
    delivered: DeliveredSql,
}

/// The parts that a statement consists of.
#[derive(Debug, PartialEq, Eq, Hash)]
struct StatementShape {
    endings: Vec<Ending>,
    one_claim: bool,
    lanes: bool,
}

impl SettleSql {
    /// Settles a batch and returns the lost leases. Retries that are due soon wait in place, if `retries` has capacity for them.
    pub(super) async fn settle(
        &self,
        mut on: impl Fetch,
        names: &PostgresNames,
        known: &QueueMap,
        floor: impl Fn(&QueueName) -> i64,
        retries: Option<&InPlaceRetries>,
        settlements: &[LeaseSettlement],
    ) -> Result<Vec<Lease>, Error> {
        if let Some(delivered) = DeliveredBatch::of(settlements, known) {
            return self.delivered.settle(&mut on, names, &delivered, settlements).await;
        }
        let retries = retries.filter(|retries| retries.has_capacity_for(settlements.len()));
        let Batch { mut lost, lanes, steps } = Batch::sort(settlements, known, floor, retries.is_some());
        let mut lanes = Some(lanes).filter(|lanes| !lanes.is_empty());
        let steps = if steps.is_empty() && lanes.is_some() { vec![SettleStep::default()] } else { steps };
        for step in steps {
            self.run_step(&mut on, names, &step, lanes.take(), &mut lost).await?;
            if let Some(retries) = retries {
                remember(retries, step.iter().filter(|row| row.ending == Ending::RetryInPlace));
            }
        }
        lost.sort_unstable();
        Ok(lost.into_iter().map(|index| settlements[index].lease.clone()).collect())
    }

    async fn run_step(
        &self,
        on: &mut impl Fetch,
        names: &PostgresNames,
        step: &SettleStep<'_>,
        lanes: Option<LaneBatch<'_>>,
        lost: &mut Vec<usize>,
    ) -> Result<(), Error> {
        let claim = step.one_claim();
        let one_claim = claim.is_some();
        let endings = step.by_ending().map(|(ending, _)| ending).collect();
        let sql = self.statement(names, StatementShape { endings, one_claim, lanes: lanes.is_some() });
        let mut query = sql.query();
        if let Some((token, queue)) = claim {
            query = query.bind(token.as_uuid()).bind(queue);
        }
        for (ending, rows) in step.by_ending() {
            query = bind_rows(query, ending, rows, one_claim);
        }
        if let Some(lanes) = &lanes {
            query = lanes.bind(query);
        }
        let row = fetch_row(on, query).await?;
        let missing: Option<Vec<Uuid>> = row.try_get(0).map_err(store_error)?;
        let missing: HashSet<Uuid> = missing.into_iter().flatten().collect();
        let ids = step.iter().filter(|row| is_in(Some(row.lease.id().as_uuid()), &missing));
        lost.extend(ids.map(|row| row.index));
        if let Some(lanes) = lanes {
            let missing: Vec<i32> = row.try_get(1).map_err(store_error)?;
            lost.extend(lanes.indexes_of(&missing));
        }
        Ok(())
    }

    fn statement(&self, names: &PostgresNames, shape: StatementShape) -> Sql {
        let mut cache = self.mixed.lock().unwrap_or_else(PoisonError::into_inner);
        cache.entry(shape).or_insert_with_key(|shape| names.sql(&template(shape))).clone()
    }

    /// The statements, for tests that read their plans.
    pub(super) fn texts(&self, names: &PostgresNames) -> Vec<(&'static str, String)> {
        use Ending::{Dead, Done, Keep, Release, Retry, RetryInPlace, Snooze};
        let mixed = |one_claim| {
            let endings = vec![Done, Keep, Retry, Dead, Release, Snooze, RetryInPlace];
            self.statement(names, StatementShape { endings, one_claim, lanes: false })
        };
        let mut texts = vec![
            ("settle one claim", mixed(true).as_str().to_owned()),
            ("settle mixed claims", mixed(false).as_str().to_owned()),
        ];
        texts.extend(self.delivered.texts(names));
        texts
    }
}

/// Runs the statement and returns its only row.
pub(super) async fn fetch_row(
    on: &mut impl Fetch,
    query: Query<'_, Postgres, PgArguments>,
) -> Result<PgRow, Error> {
    let rows = on.fetch_all(query).await?;
    rows.into_iter().next().ok_or_else(|| store_error(sqlx::Error::RowNotFound))
}

pub(super) fn is_in<T: Eq + Hash>(value: Option<T>, set: &HashSet<T>) -> bool {
    value.is_some_and(|value| set.contains(&value))
}

/// A lost lease is remembered, too: its position is then claimed once without a result.
fn remember<'s>(retries: &InPlaceRetries, rows: impl Iterator<Item = &'s RowSettlement<'s>>) {
    let now = Instant::now();
    for row in rows {
        if let Some(position) = row.lease.position() {
            retries.remember(row.queue, position, now + Duration::from_secs_f64(row.seconds));
        }
    }
}

fn bind_rows<'q>(
    mut query: Query<'q, Postgres, PgArguments>,
    ending: Ending,
    rows: &[RowSettlement<'_>],
    one_claim: bool,
) -> Query<'q, Postgres, PgArguments> {
    query = query.bind(rows.iter().map(|row| row.lease.id().as_uuid()).collect::<Vec<_>>());
    if !one_claim {
        query = query
            .bind(rows.iter().map(|row| row.lease.token().as_uuid()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.queue).collect::<Vec<_>>());
    }
    let seconds = || rows.iter().map(|row| row.seconds).collect::<Vec<_>>();
    let reasons = || rows.iter().map(|row| row.reason).collect::<Vec<_>>();
    let errors = || rows.iter().map(|row| row.error.as_deref().map(str::to_owned)).collect::<Vec<_>>();
    match ending {
        Ending::Done | Ending::Release => query,
        Ending::Keep | Ending::Snooze => query.bind(seconds()),
        Ending::Retry | Ending::RetryInPlace => query.bind(seconds()).bind(errors()),
        Ending::Dead => query.bind(reasons()).bind(errors()),
    }
}

/// The columns that a message keeps when it moves to another table.
pub(super) const MOVED: &str = "id, staged_at, message_id, queue, ordered, payload, event_type, content_type, key, tenant, subject, \
    timer, headers";

/// The same columns of the row `m`.
pub(super) const MOVED_OF_M: &str = "m.id, m.staged_at, m.message_id, m.queue, m.ordered, m.payload, m.event_type, m.content_type, m.key, \
    m.tenant, m.subject, m.timer, m.headers";

/// The rows of one claim, and those of several claims.
const ONE_CLAIM: &str =
    "r.message_id = any({id}::uuid[]) and r.token = $1::uuid and r.queue + 0 = $2::smallint";
const OWN_CLAIM: &str = "r.message_id = any({id}::uuid[]) \
    and r.token = ({token}::uuid[])[width_bucket(r.message_id, {id}::uuid[])] \
    and r.queue + 0 = ({number}::smallint[])[width_bucket(r.message_id, {id}::uuid[])]";

const DONE: &str = "done as (delete from {ready} r where {guard} returning r.message_id, r.queue, r.timer)";

const KEEP: &str = "kept as (delete from {ready} r where {guard} returning r.*), \
    archived as (insert into {archive} ({moved}, due_at, attempts, deliveries, last_error, expires_at) \
      select {of_m}, m.due_at, m.attempts, m.deliveries, m.last_error, clock_timestamp() + u.keep * interval '1 s' \
      from unnest({id}::uuid[], {keep}::float8[]) u(id, keep) full join kept m on m.message_id = u.id \
      where coalesce(m.id, -1) >= 0)";

const RETRY: &str = "retry_rows as (delete from {ready} r where {guard} returning r.*), \
    retried as (insert into {scheduled} ({moved}, due_at, attempts, deliveries, last_error, first_failed_at) \
      select {of_m}, clock_timestamp() + u.delay * interval '1 s', m.attempts + 1, m.deliveries, u.error, \
        coalesce(m.first_failed_at, clock_timestamp()) \
      from unnest({id}::uuid[], {delay}::float8[], {error}::text[]) u(id, delay, error) full join retry_rows m on m.message_id = u.id \
      where coalesce(m.id, -1) >= 0 on conflict (message_id, queue) do nothing)";

const DEAD: &str = "dead_rows as (delete from {ready} r where {guard} returning r.*), \
    dead_lettered as (insert into {dead} ({moved}, due_at, attempts, deliveries, reason, last_error) \
      select {of_m}, m.due_at, m.attempts + 1, m.deliveries, u.reason, u.error \
      from unnest({id}::uuid[], {reason}::text[], {error}::text[]) u(id, reason, error) full join dead_rows m on m.message_id = u.id \
      where coalesce(m.id, -1) >= 0)";

const RELEASE: &str = "released as (update {ready} r set token = null, lease_until = '-infinity', \
    deliveries = r.deliveries - 1 where {guard} returning r.message_id)";

const SNOOZE: &str = "snoozed_rows as (delete from {ready} r where {guard} returning r.*), \
    snoozed as (insert into {scheduled} ({moved}, due_at, attempts, deliveries, last_error, first_failed_at) \
      select {of_m}, clock_timestamp() + u.delay * interval '1 s', m.attempts, m.deliveries - 1, m.last_error, m.first_failed_at \
      from unnest({id}::uuid[], {delay}::float8[]) u(id, delay) full join snoozed_rows m on m.message_id = u.id \
      where coalesce(m.id, -1) >= 0 on conflict (message_id, queue) do nothing)";

const RETRY_IN_PLACE: &str = "retried_in_place as (update {ready} r set token = null, \
    lease_until = clock_timestamp() + ({delay}::float8[])[width_bucket(r.message_id, {id}::uuid[])] * interval '1 s', \
    due_at = clock_timestamp() + ({delay}::float8[])[width_bucket(r.message_id, {id}::uuid[])] * interval '1 s', \
    attempts = r.attempts + 1, isolated = null, \
    first_failed_at = coalesce(r.first_failed_at, clock_timestamp()), last_error = ({error}::text[])[width_bucket(r.message_id, {id}::uuid[])] \
    where {guard} returning r.message_id)";

/// The names of the timers that have ended.
const UNNAME: &str = "unnamed as (delete from {timer} t where t.ctid = any(array(select (select m.ctid from {timer} m \
    where m.queue = e.queue and m.name = e.timer) from ({ended}) e where e.timer is not null)))";

const LOST: &str =
    "case when {held_count} = {sent_count} then null else array(select unnest({sent}) except ({held})) end";

fn template(shape: &StatementShape) -> Template {
    let mut last = if shape.one_claim && !shape.endings.is_empty() { 2_usize } else { 0 };
    let mut param = || {
        last += 1;
        sql!("${number}", number = last)
    };
    let (moved, of_m) = (sql!(MOVED), sql!(MOVED_OF_M));
    let (mut parts, mut ids, mut held, mut ended) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ending in &shape.endings {
        let id = param();
        let guard = match shape.one_claim {
            true => sql!(ONE_CLAIM, id),
            false => sql!(OWN_CLAIM, id, token = param(), number = param()),
        };
        let (part, rows, has_ended) = match ending {
            Ending::Done => (sql!(DONE, guard), sql!("done"), true),
            Ending::Keep => (sql!(KEEP, guard, moved, of_m, id, keep = param()), sql!("kept"), true),
            Ending::Retry => {
                let part = sql!(RETRY, guard, moved, of_m, id, delay = param(), error = param());
                (part, sql!("retry_rows"), false)
            }
            Ending::Dead => {
                let part = sql!(DEAD, guard, moved, of_m, id, reason = param(), error = param());
                (part, sql!("dead_rows"), true)
            }
            Ending::Release => (sql!(RELEASE, guard), sql!("released"), false),
            Ending::Snooze => {
                (sql!(SNOOZE, guard, moved, of_m, id, delay = param()), sql!("snoozed_rows"), false)
            }
            Ending::RetryInPlace => {
                let part = sql!(RETRY_IN_PLACE, guard, id, delay = param(), error = param());
                (part, sql!("retried_in_place"), false)
            }
        };
        if has_ended {
            ended.push(rows.clone());
        }
        parts.push(part);
        held.push(rows);
        ids.push(sql!("{id}::uuid[]", id));
    }
    if !ended.is_empty() {
        parts.push(sql!(UNNAME, ended = union(&ended, &sql!("queue, timer"))));
    }
    let lost = if held.is_empty() {
        sql!("null::uuid[]")
    } else {
        let held_count = held.iter().map(|rows| sql!("(select count(*) from {rows})", rows));
        let sent_count = ids.iter().map(|ids| sql!("cardinality({ids})", ids));
        let [held_count, sent_count] = [Template::join(held_count, " + "), Template::join(sent_count, " + ")];
        let (sent, held) = (Template::join(ids.clone(), " || "), union(&held, &sql!("message_id")));
        sql!(LOST, held_count, sent_count, sent, held)
    };
    let lanes = if shape.lanes { sql!(", {call}", call = LaneBatch::call(param)) } else { sql!("") };
    let with =
        if parts.is_empty() { sql!("") } else { sql!("with {parts} ", parts = Template::join(parts, ", ")) };
    sql!("{with}select {lost}{lanes}", with, lost, lanes)
}

fn union(tables: &[Template], columns: &Template) -> Template {
    let selects = tables.iter().map(|table| sql!("select {columns} from {table}", columns, table));
    Template::join(selects, " union all ")
}
