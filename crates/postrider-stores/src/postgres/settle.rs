//! Ending and extending claims: any mix in one statement, each guarded by its token.
//!
//! The statement is put together from the kinds that a batch holds, so that a batch of successes pays for nothing else.
//! Rows are found by `message_id = ANY`, the leading column of one index, so there is one plan. A batch of one claim
//! compares one token; a mixed batch finds each row's own token by binary search in the sorted ids (`width_bucket`), so
//! that a stale token never passes for another one of the same batch. The queue is compared as `queue + 0`: the
//! planner must not see a second index in it.
//!
//! Per-row values come through `unnest` and a full join, which has no nested loop and so nothing quadratic, and every row
//! that is removed is stored: a value that is missing breaks a NOT NULL and fails the statement, and with it the removal.

use super::{
    Names, connections::Connections, error::store_error, lane_settle::LaneBatch, names::Sql, queues::Known,
};
use postrider_core::{Error, Lease, QueueName, QueuePolicy, Settle, Settlement, limits};
use sqlx::{Postgres, Row, postgres::PgArguments, query::Query};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    sync::{Mutex, PoisonError},
    time::Duration,
};
use uuid::Uuid;

/// The statements, each made when first needed.
#[derive(Debug, Default)]
pub(super) struct SettleSql(Mutex<HashMap<Shape, Sql>>);

/// What a statement has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Shape {
    kinds: u8,
    one_claim: bool,
    lanes: bool,
}

/// The kinds of endings, in the order of the statement's parts.
const KINDS: usize = 5;
const DONE: usize = 0;
const KEEP: usize = 1;
const RETRY: usize = 2;
const DEAD: usize = 3;
const RELEASE: usize = 4;

/// One row to settle.
#[derive(Debug, Clone)]
struct Ending<'s> {
    index: usize,
    lease: &'s Lease,
    queue: i16,
    kind: usize,
    /// Seconds to wait or to keep.
    seconds: f64,
    reason: Option<&'static str>,
    error: Option<Cow<'s, str>>,
}

/// A batch in which every message id is there once.
#[derive(Debug, Default)]
struct Wave<'s> {
    rows: [Vec<Ending<'s>>; KINDS],
    ids: HashSet<Uuid>,
}

impl SettleSql {
    /// Settles a batch and answers with what was lost.
    pub(super) async fn settle(
        &self,
        connections: &Connections,
        names: &Names,
        known: &Known,
        floor: impl Fn(&QueueName) -> i64,
        settlements: &[Settle],
    ) -> Result<Vec<Lease>, Error> {
        let mut lost: Vec<usize> = Vec::new();
        let mut lanes = LaneBatch::default();
        let mut waves: Vec<Wave<'_>> = vec![Wave::default()];
        let mut seen = HashSet::with_capacity(settlements.len());
        for (index, settle) in settlements.iter().enumerate() {
            let Some(queue) = known.named(settle.lease.queue()) else {
                lost.push(index);
                continue;
            };
            if !seen.insert((
                queue.number,
                settle.lease.id(),
                settle.lease.token(),
                settle.lease.turn().is_some(),
            )) {
                // Settled already, earlier in this batch.
                lost.push(index);
            } else if settle.lease.turn().is_some() {
                lanes.add(index, queue, settle, floor(&queue.name));
            } else {
                let row = row(index, settle, queue.number, &queue.policy);
                let id = row.lease.id().as_uuid();
                // The same id under another token or in another queue: a statement of its own, since it is found by id.
                let wave = match waves.iter_mut().find(|wave| !wave.ids.contains(&id)) {
                    Some(wave) => wave,
                    None => {
                        waves.push(Wave::default());
                        let last = waves.len() - 1;
                        &mut waves[last]
                    }
                };
                wave.ids.insert(id);
                wave.rows[row.kind].push(row);
            }
        }
        lost.extend(lanes.lost_here());
        let mut lanes = Some(lanes).filter(|lanes| !lanes.is_empty());
        for wave in waves {
            if wave.ids.is_empty() && lanes.is_none() {
                continue;
            }
            self.settle_wave(connections, names, wave, lanes.take(), &mut lost).await?;
        }
        lost.sort_unstable();
        Ok(lost.into_iter().map(|index| settlements[index].lease.clone()).collect())
    }

    async fn settle_wave(
        &self,
        connections: &Connections,
        names: &Names,
        mut wave: Wave<'_>,
        lanes: Option<LaneBatch<'_>>,
        lost: &mut Vec<usize>,
    ) -> Result<(), Error> {
        for rows in &mut wave.rows {
            rows.sort_unstable_by_key(|row| row.lease.id());
        }
        let mut all = wave.rows.iter().flatten();
        let claim = all.next().map(|first| (first.lease.token(), first.queue));
        let one_claim = claim.is_none_or(|claim| all.all(|row| (row.lease.token(), row.queue) == claim));
        let kinds = (0..KINDS).filter(|kind| !wave.rows[*kind].is_empty());
        let shape = Shape {
            kinds: kinds.fold(0, |bits, kind| bits | (1 << kind)),
            one_claim,
            lanes: lanes.is_some(),
        };
        let sql = self.statement(names, shape);
        let mut query = sql.query();
        if let Some((token, queue)) = claim.filter(|_| one_claim) {
            query = query.bind(token.as_uuid()).bind(queue);
        }
        for (kind, rows) in wave.rows.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            query = bind_rows(query, kind, rows, one_claim);
        }
        if let Some(lanes) = &lanes {
            query = lanes.bind(query);
        }
        let answer = connections.fetch_all(query).await?;
        let answer = answer.first().ok_or_else(|| store_error(sqlx::Error::RowNotFound))?;
        let ids: Option<Vec<Uuid>> = answer.try_get(0).map_err(store_error)?;
        if let Some(ids) = ids {
            let ids: HashSet<Uuid> = ids.into_iter().collect();
            let gone = wave.rows.iter().flatten().filter(|row| ids.contains(&row.lease.id().as_uuid()));
            lost.extend(gone.map(|row| row.index));
        }
        if let Some(lanes) = lanes {
            let gone: Vec<i32> = answer.try_get(1).map_err(store_error)?;
            lost.extend(lanes.indexes_of(&gone));
        }
        Ok(())
    }

    fn statement(&self, names: &Names, shape: Shape) -> Sql {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cache.entry(shape).or_insert_with(|| names.sql(&template(shape))).clone()
    }

    /// The statement of a mixed batch, for tests that read its plan.
    pub(super) fn mixed(&self, names: &Names, one_claim: bool) -> Sql {
        self.statement(names, Shape { kinds: (1 << KINDS) - 1, one_claim, lanes: false })
    }
}

fn row<'s>(index: usize, settle: &'s Settle, queue: i16, policy: &QueuePolicy) -> Ending<'s> {
    let plain =
        |kind| Ending { index, lease: &settle.lease, queue, kind, seconds: 0.0, reason: None, error: None };
    match &settle.settlement {
        Settlement::Done => match policy.keep_for {
            Some(keep) => Ending { seconds: keep.as_secs_f64(), ..plain(KEEP) },
            None => plain(DONE),
        },
        Settlement::Retry { after, error } => {
            Ending { seconds: seconds(*after), error: text(error.as_deref()), ..plain(RETRY) }
        }
        Settlement::Dead { .. } if !policy.dead_letters => plain(DONE),
        Settlement::Dead { reason, error } => {
            Ending { reason: Some(reason.as_str()), error: text(error.as_deref()), ..plain(DEAD) }
        }
        Settlement::Release => plain(RELEASE),
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

fn bind_rows<'q>(
    mut query: Query<'q, Postgres, PgArguments>,
    kind: usize,
    rows: &[Ending<'q>],
    one_claim: bool,
) -> Query<'q, Postgres, PgArguments> {
    query = query.bind(rows.iter().map(|row| row.lease.id().as_uuid()).collect::<Vec<_>>());
    if !one_claim {
        query = query
            .bind(rows.iter().map(|row| row.lease.token().as_uuid()).collect::<Vec<_>>())
            .bind(rows.iter().map(|row| row.queue).collect::<Vec<_>>());
    }
    if matches!(kind, KEEP | RETRY) {
        query = query.bind(rows.iter().map(|row| row.seconds).collect::<Vec<_>>());
    }
    if kind == DEAD {
        query = query.bind(rows.iter().map(|row| row.reason).collect::<Vec<_>>());
    }
    if matches!(kind, RETRY | DEAD) {
        query = query.bind(rows.iter().map(|row| row.error.clone()).collect::<Vec<_>>());
    }
    query
}

/// The columns that a message takes along from room to room.
const MOVED: &str = "id, staged_at, message_id, queue, ordered, payload, event_type, content_type, key, tenant, subject, \
    timer, headers";

fn template(shape: Shape) -> String {
    let mut next = if shape.one_claim && shape.kinds != 0 { 2 } else { 0 };
    let mut param = |cast: &str| {
        next += 1;
        format!("${next}::{cast}")
    };
    let moved = |alias: &str| {
        MOVED.split(", ").map(|column| format!("{alias}.{}", column.trim())).collect::<Vec<_>>().join(", ")
    };
    let mut parts: Vec<String> = Vec::new();
    let mut ids: Vec<String> = Vec::new();
    let mut held: Vec<&str> = Vec::new();
    let mut ended: Vec<&str> = Vec::new();
    for kind in (0..KINDS).filter(|kind| shape.kinds & (1 << kind) != 0) {
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
        let name = ["done", "kept", "back", "gone", "freed"][kind];
        match kind {
            DONE => parts.push(format!(
                "done as (delete from {{ready}} r where {guard} returning r.message_id, r.queue, r.timer)"
            )),
            KEEP => {
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
            RETRY => {
                let (delay, error) = (param("float8[]"), param("text[]"));
                parts.push(format!("back as (delete from {{ready}} r where {guard} returning r.*)"));
                parts.push(format!(
                    "retried as (insert into {{later}} ({MOVED}, due_at, attempts, deliveries, last_error) \
                     select {columns}, clock_timestamp() + u.delay * interval '1 s', m.attempts + 1, m.deliveries, u.error \
                     from unnest({id}, {delay}, {error}) u(id, delay, error) full join back m on m.message_id = u.id \
                     where coalesce(m.id, -1) >= 0 on conflict do nothing)",
                    columns = moved("m")
                ));
            }
            DEAD => {
                let (reason, error) = (param("text[]"), param("text[]"));
                parts.push(format!("gone as (delete from {{ready}} r where {guard} returning r.*)"));
                parts.push(format!(
                    "buried as (insert into {{dead}} ({MOVED}, due_at, attempts, deliveries, reason, last_error) \
                     select {columns}, m.due_at, m.attempts + 1, m.deliveries, u.reason, u.error \
                     from unnest({id}, {reason}, {error}) u(id, reason, error) full join gone m on m.message_id = u.id \
                     where coalesce(m.id, -1) >= 0)",
                    columns = moved("m")
                ));
            }
            _ => parts.push(format!(
                "freed as (update {{ready}} r set token = null, lease_until = '-infinity', \
                 deliveries = r.deliveries - 1 where {guard} returning r.message_id)"
            )),
        }
        if matches!(kind, DONE | KEEP | DEAD) {
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
