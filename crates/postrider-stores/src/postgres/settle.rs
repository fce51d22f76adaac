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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct StatementShape {
    /// Bits, see [`Ending::bit`].
    endings: u8,
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
                remember(retries, step.of(Ending::RetryInPlace));
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
        let sql = self
            .statement(names, StatementShape { endings: step.endings(), one_claim, lanes: lanes.is_some() });
        let mut query = sql.query();
        if let Some((token, queue)) = claim {
            query = query.bind(token.as_uuid()).bind(queue);
        }
        for ending in Ending::ALL.into_iter().filter(|ending| !step.of(*ending).is_empty()) {
            query = bind_rows(query, ending, step.of(ending), one_claim);
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
        cache.entry(shape).or_insert_with(|| names.sql(&template(shape))).clone()
    }

    /// The statements, for tests that read their plans.
    pub(super) fn texts(&self, names: &PostgresNames) -> Vec<(&'static str, String)> {
        let mixed = |one_claim| {
            self.statement(
                names,
                StatementShape { endings: (1 << Ending::ALL.len()) - 1, one_claim, lanes: false },
            )
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
fn remember(retries: &InPlaceRetries, rows: &[RowSettlement<'_>]) {
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
    if matches!(ending, Ending::Keep | Ending::Retry | Ending::Snooze | Ending::RetryInPlace) {
        query = query.bind(rows.iter().map(|row| row.seconds).collect::<Vec<_>>());
    }
    if ending == Ending::Dead {
        query = query.bind(rows.iter().map(|row| row.reason).collect::<Vec<_>>());
    }
    if matches!(ending, Ending::Retry | Ending::Dead | Ending::RetryInPlace) {
        query =
            query.bind(rows.iter().map(|row| row.error.as_deref().map(str::to_owned)).collect::<Vec<_>>());
    }
    query
}

/// The columns that a message keeps when it moves to another table.
pub(super) const MOVED: &str = "id, staged_at, message_id, queue, ordered, payload, event_type, content_type, key, tenant, subject, \
    timer, headers";

/// The columns of [`MOVED`], qualified with a table alias.
pub(super) fn moved(alias: &str) -> String {
    MOVED.split(", ").map(|column| format!("{alias}.{}", column.trim())).collect::<Vec<_>>().join(", ")
}

fn template(shape: StatementShape) -> String {
    let mut next = if shape.one_claim && shape.endings != 0 { 2 } else { 0 };
    let mut param = |cast: &str| {
        next += 1;
        format!("${next}::{cast}")
    };
    let mut parts: Vec<String> = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    let mut held: Vec<&str> = Vec::new();
    let mut ended: Vec<&str> = Vec::new();
    for ending in Ending::ALL.into_iter().filter(|ending| shape.endings & ending.bit() != 0) {
        let id = param("uuid[]");
        let guard = if shape.one_claim {
            format!("r.message_id = any({id}) and r.token = $1::uuid and r.queue + 0 = $2::smallint")
        } else {
            let (token, queue) = (param("uuid[]"), param("smallint[]"));
            format!(
                "r.message_id = any({id}) and r.token = ({token})[width_bucket(r.message_id, {id})] \
                 and r.queue + 0 = ({queue})[width_bucket(r.message_id, {id})]"
            )
        };
        let name = match ending {
            Ending::Done => "done",
            Ending::Keep => "kept",
            Ending::Retry => "retry_rows",
            Ending::Dead => "dead_rows",
            Ending::Release => "released",
            Ending::Snooze => "snoozed_rows",
            Ending::RetryInPlace => "retried_in_place",
        };
        match ending {
            Ending::Done => parts.push(format!(
                "done as (delete from {{ready}} r where {guard} returning r.message_id, r.queue, r.timer)"
            )),
            Ending::Keep => {
                let keep = param("float8[]");
                parts.push(format!("kept as (delete from {{ready}} r where {guard} returning r.*)"));
                parts.push(format!(
                    "archived as (insert into {{archive}} ({MOVED}, due_at, attempts, deliveries, last_error, expires_at) \
                     select {columns}, m.due_at, m.attempts, m.deliveries, m.last_error, \
                            clock_timestamp() + u.keep * interval '1 s' \
                     from unnest({id}, {keep}) u(id, keep) full join kept m on m.message_id = u.id \
                     where coalesce(m.id, -1) >= 0)",
                    columns = moved("m")
                ));
            }
            Ending::Retry => {
                let (delay, error) = (param("float8[]"), param("text[]"));
                parts.push(format!("retry_rows as (delete from {{ready}} r where {guard} returning r.*)"));
                parts.push(format!(
                    "retried as (insert into {{scheduled}} ({MOVED}, due_at, attempts, deliveries, last_error) \
                     select {columns}, clock_timestamp() + u.delay * interval '1 s', m.attempts + 1, m.deliveries, u.error \
                     from unnest({id}, {delay}, {error}) u(id, delay, error) full join retry_rows m on m.message_id = u.id \
                     where coalesce(m.id, -1) >= 0 on conflict (message_id, queue) do nothing)",
                    columns = moved("m")
                ));
            }
            Ending::Dead => {
                let (reason, error) = (param("text[]"), param("text[]"));
                parts.push(format!("dead_rows as (delete from {{ready}} r where {guard} returning r.*)"));
                parts.push(format!(
                    "dead_lettered as (insert into {{dead}} ({MOVED}, due_at, attempts, deliveries, reason, last_error) \
                     select {columns}, m.due_at, m.attempts + 1, m.deliveries, u.reason, u.error \
                     from unnest({id}, {reason}, {error}) u(id, reason, error) full join dead_rows m on m.message_id = u.id \
                     where coalesce(m.id, -1) >= 0)",
                    columns = moved("m")
                ));
            }
            Ending::Snooze => {
                let delay = param("float8[]");
                parts.push(format!("snoozed_rows as (delete from {{ready}} r where {guard} returning r.*)"));
                parts.push(format!(
                    "snoozed as (insert into {{scheduled}} ({MOVED}, due_at, attempts, deliveries, last_error) \
                     select {columns}, clock_timestamp() + u.delay * interval '1 s', m.attempts, m.deliveries - 1, m.last_error \
                     from unnest({id}, {delay}) u(id, delay) full join snoozed_rows m on m.message_id = u.id \
                     where coalesce(m.id, -1) >= 0 on conflict (message_id, queue) do nothing)",
                    columns = moved("m")
                ));
            }
            Ending::RetryInPlace => {
                let (delay, error) = (param("float8[]"), param("text[]"));
                let due = format!(
                    "clock_timestamp() + ({delay})[width_bucket(r.message_id, {id})] * interval '1 s'"
                );
                parts.push(format!(
                    "retried_in_place as (update {{ready}} r set token = null, lease_until = {due}, due_at = {due}, \
                     attempts = r.attempts + 1, last_error = ({error})[width_bucket(r.message_id, {id})] \
                     where {guard} returning r.message_id)"
                ));
            }
            Ending::Release => parts.push(format!(
                "released as (update {{ready}} r set token = null, lease_until = '-infinity', \
                 deliveries = r.deliveries - 1 where {guard} returning r.message_id)"
            )),
        }
        if matches!(ending, Ending::Done | Ending::Keep | Ending::Dead) {
            ended.push(name);
        }
        held.push(name);
        ids.push(id);
    }
    if !ended.is_empty() {
        let ended = union(&ended, "queue, timer");
        parts.push(format!(
            "unnamed as (delete from {{timer}} t where t.ctid = any(array(select (select m.ctid from {{timer}} m \
             where m.queue = e.queue and m.name = e.timer) from ({ended}) e where e.timer is not null)))"
        ));
    }
    let lost = if held.is_empty() {
        "null::uuid[]".to_owned()
    } else {
        let held_count = held.iter().map(|name| format!("(select count(*) from {name})")).collect::<Vec<_>>();
        let sent_count = ids.iter().map(|id| format!("cardinality({id})")).collect::<Vec<_>>();
        format!(
            "case when {} = {} then null else array(select unnest({}) except ({})) end",
            held_count.join(" + "),
            sent_count.join(" + "),
            ids.join(" || "),
            union(&held, "message_id"),
        )
    };
    let lanes = if shape.lanes { format!(", {}", LaneBatch::call(&mut param)) } else { String::new() };
    let with = if parts.is_empty() { String::new() } else { format!("with {} ", parts.join(", ")) };
    format!("{with}select {lost}{lanes}")
}

fn union(names: &[&str], columns: &str) -> String {
    names.iter().map(|name| format!("select {columns} from {name}")).collect::<Vec<_>>().join(" union all ")
}
