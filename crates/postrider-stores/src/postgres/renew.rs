//! Renewing leases, and counting deliveries in isolation.

use super::{PostgresNames, connections::Connections, error::store_error, queues::QueueMap};
use crate::template::Template;
use postrider_core::{Error, Lease};
use sqlx::Row;
use std::{
    collections::{BTreeMap, HashSet, btree_map::Entry},
    time::Duration,
};
use uuid::Uuid;

/// Rows are found by id and compared with their own token and queue, as in `settle.rs`; lanes by their key.
///
/// A renewal never waits: rows and lanes that another transaction has locked are left as they are, and count as kept while they have
/// their token. Their leases are renewed the next time, or are settled just now. Waiting for them would delay every other lease of the
/// batch, and would be a deadlock with a settlement, which locks the same rows in another order.
const RENEW: &str = "with rows as ( \
      update {ready} r set lease_until = clock_timestamp() + $1::float8 * interval '1 s' \
      where r.ctid = any(array(select m.ctid from {ready} m where {is_mine} for update skip locked)) \
      returning r.message_id), \
    lanes as ( \
      update {lane} l set lease_until = clock_timestamp() + $1::float8 * interval '1 s' \
      where l.ctid = any(array( \
        select ({lane_of_u} for update skip locked) from {leased_lanes})) \
      returning l.queue, l.key, l.token) \
    select r.message_id, null::smallint, null::text, null::uuid from rows r \
    union all select m.message_id, null, null, null from {ready} m \
      where (select count(*) from rows) < cardinality($2::uuid[]) and {is_mine} \
    union all select null, l.queue, l.key, l.token from lanes l \
    union all select null, u.queue, u.key, u.token from {leased_lanes} \
      where (select count(*) from lanes) < cardinality($7::uuid[]) and ({lane_of_u}) is not null";

const IS_MINE: &str = "m.message_id = any($2::uuid[]) and m.token = ($3::uuid[])[width_bucket(m.message_id, $2::uuid[])] \
    and m.queue + 0 = ($4::smallint[])[width_bucket(m.message_id, $2::uuid[])]";

const LEASED_LANES: &str = "unnest($5::smallint[], $6::text[], $7::uuid[]) u(queue, key, token)";
const LANE_OF_U: &str =
    "select m.ctid from {lane} m where m.queue = u.queue and m.key = u.key and m.token = u.token";

/// The message of a turn is guarded by the lease of its key.
const COUNT_ISOLATED: &str = "update {ready} r set isolated = least(coalesce(r.isolated, 0) + 1, 32767) \
    where r.message_id = $1::uuid and r.queue + 0 = $2::smallint \
      and ((r.token = $3::uuid and $4::text is null) \
        or exists (select from {lane} l where l.queue = $2::smallint and l.key = $4::text and l.token = $3::uuid)) \
    returning 1";

/// Counts a delivery that begins in isolation. Returns whether the lease is still held.
pub(super) async fn count_isolated(
    connections: &Connections,
    names: &PostgresNames,
    known: &QueueMap,
    lease: &Lease,
) -> Result<bool, Error> {
    let Some(queue) = known.named(lease.queue()) else { return Ok(false) };
    let sql = names.sql(&sql!(COUNT_ISOLATED));
    let query = sql
        .query()
        .bind(lease.id().as_uuid())
        .bind(queue.number)
        .bind(lease.token().as_uuid())
        .bind(lease.turn().map(|turn| turn.key.as_str()));
    Ok(!connections.fetch_all(query).await?.is_empty())
}

/// Extends leases, and returns those that were lost.
pub(super) async fn renew(
    connections: &Connections,
    names: &PostgresNames,
    known: &QueueMap,
    leases: &[Lease],
    lease_for: Duration,
) -> Result<Vec<Lease>, Error> {
    let mut lost = Vec::new();
    let mut rest: Vec<(i16, &Lease)> = Vec::new();
    for lease in leases {
        match known.named(lease.queue()) {
            Some(queue) => rest.push((queue.number, lease)),
            None => lost.push(lease.clone()),
        }
    }
    let sql = names.sql(&statement());
    while !rest.is_empty() {
        // The same id twice (in two queues, or under two tokens) needs another statement: rows are found by id.
        let mut rows: BTreeMap<Uuid, (i16, &Lease)> = BTreeMap::new();
        let mut lanes: BTreeMap<(i16, &str, Uuid), Vec<&Lease>> = BTreeMap::new();
        let mut next = Vec::new();
        for (queue, lease) in rest {
            if let Some(turn) = lease.turn() {
                lanes.entry((queue, turn.key.as_str(), lease.token().as_uuid())).or_default().push(lease);
            } else {
                match rows.entry(lease.id().as_uuid()) {
                    Entry::Vacant(free) => _ = free.insert((queue, lease)),
                    Entry::Occupied(_) => next.push((queue, lease)),
                }
            }
        }
        let query = sql
            .query()
            .bind(lease_for.as_secs_f64())
            .bind(rows.keys().copied().collect::<Vec<_>>())
            .bind(rows.values().map(|(_, lease)| lease.token().as_uuid()).collect::<Vec<_>>())
            .bind(rows.values().map(|(queue, _)| *queue).collect::<Vec<_>>())
            .bind(lanes.keys().map(|(queue, ..)| *queue).collect::<Vec<_>>())
            .bind(lanes.keys().map(|(_, key, _)| *key).collect::<Vec<_>>())
            .bind(lanes.keys().map(|(.., token)| *token).collect::<Vec<_>>());
        let reply = connections.fetch_all(query).await?;
        let mut kept_rows = HashSet::new();
        let mut kept_lanes = HashSet::new();
        for row in &reply {
            if let Some(id) = row.try_get::<Option<Uuid>, _>(0).map_err(store_error)? {
                kept_rows.insert(id);
            } else {
                kept_lanes.insert(lane(row).map_err(store_error)?);
            }
        }
        lost.extend(
            rows.iter().filter(|(id, _)| !kept_rows.contains(*id)).map(|(_, (_, lease))| (*lease).clone()),
        );
        let lost_lanes = lanes.into_iter().filter(|(lane, _)| !kept_lanes.contains(lane));
        lost.extend(lost_lanes.flat_map(|(_, leases)| leases).cloned());
        rest = next;
    }
    Ok(lost)
}

fn statement() -> Template {
    let (is_mine, leased_lanes, lane_of_u) = (sql!(IS_MINE), sql!(LEASED_LANES), sql!(LANE_OF_U));
    sql!(RENEW, is_mine, leased_lanes, lane_of_u)
}

/// The statement, for tests that read its plan.
pub(super) fn text(names: &PostgresNames) -> (&'static str, String) {
    ("renew", names.sql(&statement()).as_str().to_owned())
}

fn lane(row: &sqlx::postgres::PgRow) -> Result<(i16, &str, Uuid), sqlx::Error> {
    Ok((row.try_get(1)?, row.try_get(2)?, row.try_get(3)?))
}
