//! Claiming: selects the next messages and leases them.
//!
//! Every queue has candidates: an unordered queue its free messages, an ordered one its lanes. The candidates that have waited
//! longest win, across all queues of the request. Each candidate yields at least one message; the rest of the limit lets the first
//! lanes yield more. Where tenants take turns (`fairness.rs`), candidates come in the order of turns.
//!
//! A claim first checks without the write lock whether anything is due. Usually nothing is, for an idle worker: then the claim has
//! neither blocked a writer nor waited for one. An index and the limit bound all reads and writes: leased, blocked and scheduled
//! messages are in other indexes.

use super::{
    SqliteNames,
    error::store_error,
    fairness, lanes,
    queues::{self, Queue},
    row::{self, COLUMNS, body, json, sql_limit},
    statement::Statement,
    statement_batch::{execute_each_position, query_each},
    timestamp::{Micros, after, to_system_time},
    writer::Write,
};
use crate::{
    template::Template,
    turns::{COME_DUE, Turns},
};
use postrider_core::{
    ClaimRequest, ClaimedMessage, Error, Lease, LeaseToken, Message, MessageId, OrderingKey, QueueName,
    lease::Turn,
};
use sqlx::{Row, SqliteConnection, SqlitePool, sqlite::SqliteRow};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::SystemTime,
};
use uuid::Uuid;

/// The most messages that a lane yields in one turn.
const MAX_TURN: usize = 16;

/// Whether anything is due.
pub(super) const IS_ANYTHING_DUE: &str = "select exists (select 1 from {queue} q \
    where q.name in (select j.value from json_each(?1) j) \
      and not exists (select 1 from {pause} p where p.kind = 'queue' and p.name = q.name) and ( \
      (q.ordered = 0 and ( \
        exists (select 1 from {ready} r indexed by {ready_free} where r.queue = q.id and r.token is null) or \
        exists (select 1 from {ready} r indexed by {ready_leased} where r.queue = q.id and r.token is not null and r.lease_until <= {now}))) or \
      (q.ordered = 1 and ( \
        exists (select 1 from {lane} l indexed by {lane_free} where l.queue = q.id and l.token is null and l.due_at is null) or \
        exists (select 1 from {lane} l indexed by {lane_leased} where l.queue = q.id and l.token is not null and l.lease_until <= {now}) or \
        exists (select 1 from {lane} l indexed by {lane_due} where l.queue = q.id and l.due_at is not null and l.due_at <= {now}))) or \
      exists (select 1 from {scheduled} w indexed by {scheduled_due} where w.queue = q.id and w.due_at <= {now})))";

pub(super) async fn is_anything_due(
    readers: &SqlitePool,
    names: &SqliteNames,
    queues: &[QueueName],
) -> Result<bool, Error> {
    let queues = json(queues.iter().map(QueueName::as_str));
    let row = names.sql(&sql!(IS_ANYTHING_DUE)).query().bind(queues).fetch_one(readers).await;
    row.and_then(|row| row.try_get(0)).map_err(store_error)
}

/// A message or a lane that may be claimed.
struct Candidate<'q> {
    since: i64,
    queue: &'q Queue,
    kind: CandidateKind,
}

enum CandidateKind {
    Free,
    Expired,
    /// A message whose tenant has the turn.
    Turn {
        position: i64,
        tenant: String,
    },
    Lane {
        key: String,
        expired_leases: u32,
    },
}

pub(super) async fn claim(
    write: &mut Write,
    names: &SqliteNames,
    request: &ClaimRequest,
    turns: &Mutex<HashMap<i64, Turns>>,
) -> Result<Vec<ClaimedMessage>, Error> {
    let (now, limit) = (write.now, request.limit());
    let connection = &mut write.connection;
    let mut queues = queues::existing(&mut *connection, names, request.queues()).await?;
    queues.retain(|queue| !queue.is_paused);
    let mut candidates = Vec::new();
    for queue in &queues {
        let stage_statement = if queue.policy.fair_by_tenant { limit.max(COME_DUE) } else { limit };
        promote(connection, names, queue, stage_statement, now).await?;
        if queue.is_ordered() {
            let runnable = lanes::runnable(connection, names, queue.number, limit, now).await?;
            candidates.extend(runnable.into_iter().map(|lane| Candidate {
                since: lane.turn,
                queue,
                kind: CandidateKind::Lane { key: lane.key, expired_leases: lane.expired_leases },
            }));
        } else if queue.policy.fair_by_tenant {
            let turns = lock(turns).entry(queue.number).or_default().clone();
            for pick in fairness::picks(connection, names, queue.number, request, &turns, now).await? {
                let kind = CandidateKind::Turn { position: pick.position, tenant: pick.tenant };
                candidates.push(Candidate { since: pick.since, queue, kind });
            }
        } else {
            for (since, is_expired) in free(connection, names, queue.number, limit, now).await? {
                let kind = if is_expired { CandidateKind::Expired } else { CandidateKind::Free };
                candidates.push(Candidate { since, queue, kind });
            }
        }
    }
    candidates.sort_unstable_by_key(|candidate| candidate.since);
    candidates.truncate(limit);

    let new_lease = StoredLease { token: Uuid::new_v4(), until: after(now, request.lease_for()), now };
    let spare = limit - candidates.len();
    let (lanes, messages): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|candidate| matches!(candidate.kind, CandidateKind::Lane { .. }));
    let mut claimed = Vec::with_capacity(limit.min(1024));
    for queue in &queues {
        lease_messages(connection, names, queue, &messages, new_lease, &mut claimed).await?;
        if queue.policy.fair_by_tenant {
            let own = messages.iter().filter(|candidate| candidate.queue.number == queue.number);
            let tenants = own.filter_map(|candidate| match &candidate.kind {
                CandidateKind::Turn { tenant, .. } => Some(tenant.as_str()),
                _ => None,
            });
            lock(turns).entry(queue.number).or_default().charge(request.tenant_weights(), tenants);
        }
    }
    if !lanes.is_empty() {
        claimed.extend(lease_lanes(connection, names, &lanes, spare, new_lease).await?);
    }
    claimed.sort_unstable_by_key(|(position, _)| *position);
    Ok(claimed.into_iter().map(|(_, claimed)| claimed).collect())
}

fn lock(turns: &Mutex<HashMap<i64, Turns>>) -> std::sync::MutexGuard<'_, HashMap<i64, Turns>> {
    turns.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Clone, Copy)]
struct StoredLease {
    token: Uuid,
    until: Micros,
    now: Micros,
}

/// Free messages, and those whose lease has expired, each from its own index.
pub(super) const FREE_OR_EXPIRED: &str = "select id, is_expired from ( \
      select * from (select id, 0 as is_expired from {ready} indexed by {ready_free} \
        where queue = ?1 and token is null order by id limit ?2) \
      union all select * from (select id, 1 from {ready} indexed by {ready_leased} \
        where queue = ?1 and token is not null and lease_until <= ?3 order by lease_until, id limit ?2)) \
    order by id limit ?2";

async fn free(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    queue: i64,
    limit: usize,
    now: Micros,
) -> Result<Vec<(i64, bool)>, Error> {
    let sql = names.sql(&sql!(FREE_OR_EXPIRED));
    let query = sql.query().bind(queue).bind(sql_limit(limit)).bind(now);
    let rows = query.fetch_all(connection).await.map_err(store_error)?;
    let free = rows.iter().map(|row| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?)));
    free.collect::<Result<_, _>>().map_err(store_error)
}

const SET_LEASE: &str = "set token = ?, lease_until = ?, deliveries = deliveries + 1, promoted = 0";

/// The columns of a [`ReadyRow`].
pub(super) fn returned() -> Template {
    sql!(
        "id, queue, promoted, deliveries, attempts, isolated, staged_at, due_at, first_failed_at, {columns}",
        columns = sql!(COLUMNS)
    )
}

/// Leases the free messages up to a position. The index allows only one query plan.
pub(super) fn lease_free_template() -> Template {
    const LEASE: &str = "update {ready} indexed by {ready_free} {set_lease} where queue = ? and token is null and id <= ? \
        returning {returned}";
    sql!(LEASE, set_lease = sql!(SET_LEASE), returned = returned())
}

/// Leases one message by its position: its lease has expired, or its tenant has the turn.
pub(super) fn lease_by_position_template() -> Template {
    const LEASE: &str = "update {ready} {set_lease} where id = ? returning {returned}";
    sql!(LEASE, set_lease = sql!(SET_LEASE), returned = returned())
}

async fn lease_messages(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    queue: &Queue,
    candidates: &[Candidate<'_>],
    new_lease: StoredLease,
    claimed: &mut Vec<(i64, ClaimedMessage)>,
) -> Result<(), Error> {
    let (mut last_free, mut expired, mut since) = (None, Vec::new(), HashMap::new());
    for candidate in candidates.iter().filter(|candidate| candidate.queue.number == queue.number) {
        match candidate.kind {
            CandidateKind::Free => last_free = Some(candidate.since),
            CandidateKind::Turn { position, .. } => {
                expired.push(position);
                since.insert(position, candidate.since);
            }
            _ => expired.push(candidate.since),
        }
    }
    let bind = |lease: Statement<'static>, position: &i64| {
        lease.bind(new_lease.token).bind(new_lease.until).bind(*position)
    };
    let mut rows = query_each(connection, names, &lease_by_position_template(), &expired, bind).await?;
    if let Some(last) = last_free {
        let query = names.sql(&lease_free_template()).query().bind(new_lease.token).bind(new_lease.until);
        let free = query.bind(queue.number).bind(last).fetch_all(&mut *connection).await;
        rows.extend(free.map_err(store_error)?);
    }
    for row in rows {
        let row = ReadyRow::read(&row, &queue.name).map_err(store_error)?;
        let (position, one) =
            row.into_claimed(&queue.name, LeaseToken::from_uuid(new_lease.token), new_lease.now);
        claimed.push((since.get(&position).copied().unwrap_or(position), one));
    }
    Ok(())
}

/// Begins the turns of lanes. Each yields at least its head; the rest of the limit goes to the first lanes. After an expired lease
/// the head comes alone: it may be the message that crashes workers.
async fn lease_lanes(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    candidates: &[Candidate<'_>],
    mut spare: usize,
    new_lease: StoredLease,
) -> Result<Vec<(i64, ClaimedMessage)>, Error> {
    let keys: Vec<(i64, &str, u32)> = candidates
        .iter()
        .filter_map(|candidate| match &candidate.kind {
            CandidateKind::Lane { key, expired_leases } => {
                Some((candidate.queue.number, key.as_str(), *expired_leases))
            }
            _ => None,
        })
        .collect();
    let lanes: Vec<_> = keys.iter().map(|(queue, key, _)| (*queue, *key)).collect();
    let heads = lanes::heads(connection, names, &lanes, MAX_TURN.min(1 + spare)).await?;
    lanes::lease(connection, names, &lanes, new_lease.token, new_lease.until).await?;

    let mut turns = HashMap::new();
    for ((candidate, (_, key, expired_leases)), mut positions) in candidates.iter().zip(keys).zip(heads) {
        positions.truncate(if expired_leases > 0 { 1 } else { 1 + spare });
        spare -= positions.len().saturating_sub(1);
        for position in &positions {
            let turn = Turn {
                key: OrderingKey::stored(key),
                position: *position,
                last: Some(position) == positions.last(),
            };
            turns.insert(*position, (candidate.queue, turn, expired_leases));
        }
    }
    let sql = names.sql(&fetch_template());
    let rows = sql.query().bind(json(turns.keys().copied())).fetch_all(&mut *connection).await;
    let mut claimed = Vec::with_capacity(turns.len());
    let mut promoted = Vec::new();
    for row in rows.map_err(store_error)? {
        let position: i64 = row.try_get(0).map_err(store_error)?;
        let Some((queue, turn, expired_leases)) = turns.remove(&position) else { continue };
        let row = ReadyRow::read(&row, &queue.name).map_err(store_error)?;
        if row.promoted {
            promoted.push(position);
        }
        let lease =
            Lease::new(queue.name.clone(), row.id, LeaseToken::from_uuid(new_lease.token)).in_turn(turn);
        // The delivery is counted when the message is settled; a claim does not write the rows of a lane.
        claimed.push((position, row.claimed_under(lease, expired_leases.saturating_add(1), new_lease.now)));
    }
    if !promoted.is_empty() {
        let update = sql!("update {ready} set promoted = 0 where id = ?");
        execute_each_position(connection, names, &update, &promoted).await?;
    }
    Ok(claimed)
}

pub(super) fn fetch_template() -> Template {
    sql!(
        "select r.id, queue, promoted, deliveries, attempts, isolated, staged_at, due_at, first_failed_at, {columns} \
         from (select value as position from json_each(?1)) j cross join {ready} r on r.id = j.position",
        columns = sql!(COLUMNS)
    )
}

/// A row of `ready`, as the statements of this module return it.
pub(super) struct ReadyRow {
    position: i64,
    id: MessageId,
    promoted: bool,
    message: Message,
    deliveries: u32,
    attempts: u32,
    isolated: u32,
    staged_at: SystemTime,
    due_at: SystemTime,
    first_failed_at: Option<SystemTime>,
}

impl ReadyRow {
    pub(super) fn read(row: &SqliteRow, queue: &QueueName) -> Result<Self, sqlx::Error> {
        Ok(Self {
            position: row.try_get_unchecked(0)?,
            promoted: row.try_get_unchecked(2)?,
            deliveries: row::count(row, 3)?,
            attempts: row::count(row, 4)?,
            isolated: row::count(row, 5)?,
            staged_at: row::time(row, 6)?,
            due_at: row::time(row, 7)?,
            first_failed_at: row::optional_time(row, 8)?,
            id: MessageId::from_uuid(row.try_get_unchecked(9)?),
            message: row::message(row, 9, queue)?,
        })
    }

    /// The message under a lease of its own, with its position.
    pub(super) fn into_claimed(
        self,
        queue: &QueueName,
        token: LeaseToken,
        now: Micros,
    ) -> (i64, ClaimedMessage) {
        let mut lease = Lease::new(queue.clone(), self.id, token);
        // Settling a timer also deletes its name, which the fast path does not do.
        if self.message.timer().is_none() {
            lease = lease.at_position(self.position);
        }
        (self.position, self.claimed_under(lease, 0, now))
    }

    fn claimed_under(self, lease: Lease, uncounted: u32, now: Micros) -> ClaimedMessage {
        ClaimedMessage {
            message: self.message,
            lease,
            deliveries: self.deliveries.saturating_add(uncounted),
            attempts: self.attempts,
            isolated: self.isolated,
            staged_at: self.staged_at,
            due_at: self.due_at,
            claimed_at: to_system_time(now),
            first_failed_at: self.first_failed_at,
        }
    }
}

/// Scheduled messages that are due, oldest first.
pub(super) const DUE: &str = "select id from {scheduled} indexed by {scheduled_due} where queue = ?1 and due_at <= ?2 order by due_at, id limit ?3";

pub(super) fn promote_template() -> Template {
    sql!(
        "insert into {ready} (id, due_at, first_failed_at, promoted, fair, {body}) \
         select ?2 + j.turn, due_at, first_failed_at, 1, ?3, {body} \
         from (select value as position, key as turn from json_each(?1)) j cross join {scheduled} w on w.id = j.position",
        body = body()
    )
}

/// Moves up to `limit` scheduled messages that are due to the end of `ready`.
async fn promote(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    queue: &Queue,
    limit: usize,
    now: Micros,
) -> Result<(), Error> {
    let sql = names.sql(&sql!(DUE));
    let query = sql.query().bind(queue.number).bind(now).bind(sql_limit(limit));
    let rows = query.fetch_all(&mut *connection).await.map_err(store_error)?;
    if rows.is_empty() {
        return Ok(());
    }
    let due = rows.iter().map(|row| row.try_get::<i64, _>(0));
    let due = due.collect::<Result<Vec<_>, _>>().map_err(store_error)?;
    let (first, _) = queues::draw_positions(connection, names, rows.len()).await?;
    let sql = names.sql(&promote_template());
    sql.query()
        .bind(json(due.iter().copied()))
        .bind(first)
        .bind(queue.policy.fair_by_tenant)
        .execute(&mut *connection)
        .await
        .map_err(store_error)?;
    execute_each_position(connection, names, &sql!("delete from {scheduled} where id = ?"), &due).await?;
    if queue.is_ordered() {
        lanes::open(connection, names, first..first + sql_limit(rows.len())).await?;
    }
    Ok(())
}
