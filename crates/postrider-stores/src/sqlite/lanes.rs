//! The lanes of queues that are ordered by key: the key is leased, not the message.
//!
//! A lane exists as long as its key has messages in `ready`: the transaction that inserts the first message opens the lane, and the
//! one that removes the last closes it. A lane is *free*, *leased* or *blocked*; one whose lease has expired and a blocked one that has
//! come due count as free. Each of the three has an index of its own, so a search for lanes that may run never passes over those
//! that may not.
//!
//! Turns are fair because lanes form a ring: a lane that ends its turn goes to the tail. Tails and message positions are drawn from
//! one sequence, so that keys and unordered messages can be compared by how long they have waited.
//!
//! A worker that crashes leaves an expired lease. The lane counts it (`expired_leases`), and while the count is not zero, the head is
//! claimed alone: the message that crashes workers is identified, and the messages behind it are not counted as failures.

use super::{
    SqliteNames,
    drivers::{Driver, DriverRow, first_row},
    error::store_error,
    row::{json, sql_limit},
    statement::Statement,
    statement_batch::query_each,
    timestamp::Micros,
};
use postrider_core::Error;
use serde_json::Value;
use sqlx::{Row, SqliteConnection};
use std::ops::Range;
use uuid::Uuid;

pub(super) const OPEN: &str = "insert into {lane} (queue, key, turn) select r.queue, r.key, min(r.id) \
    from {ready} r not indexed \
    where r.id >= ?1 and r.id < ?2 and r.ordered = 1 group by r.queue, r.key \
    on conflict (queue, key) do nothing";

/// Opens the lanes of messages that were just inserted into `ready` at these positions, unless they are open.
pub(super) async fn open(
    driver: &mut impl Driver,
    names: &SqliteNames,
    positions: Range<i64>,
) -> Result<(), Error> {
    driver.execute(names.statement(&sql!(OPEN)).bind(positions.start).bind(positions.end)).await?;
    Ok(())
}

/// Removes a message from `ready` and from its lane. The expired leases are counted for the head and are cleared with it; a lane
/// without messages is deleted.
pub(super) async fn remove_message(
    driver: &mut impl Driver,
    names: &SqliteNames,
    queue: i64,
    id: Uuid,
) -> Result<(), Error> {
    let delete = names.statement(&sql!(
        "delete from {ready} where message_id = ?1 and queue = ?2 returning id, key, ordered"
    ));
    let Some(row) = first_row(driver, delete.bind(id).bind(queue)).await? else { return Ok(()) };
    if !row.get::<bool>(2)? {
        return Ok(());
    }
    let (position, key): (i64, String) = (row.get(0)?, row.get(1)?);
    let forget = names.statement(&sql!("update {lane} set expired_leases = 0 where queue = ?1 and key = ?2 and expired_leases > 0 and not exists ( \
         select 1 from {ready} r where r.queue = ?1 and r.key = ?2 and r.ordered = 1 and r.id < ?3)"));
    driver.execute(forget.bind(queue).bind(key.as_str()).bind(position)).await?;
    close(driver, names, &[(queue, key.as_str())]).await
}

pub(super) const CLOSE: &str = "delete from {lane} where queue = ? and key = ? and not exists ( \
    select 1 from {ready} r where r.queue = {lane}.queue and r.key = {lane}.key and r.ordered = 1)";

/// Closes the lanes that have no messages left.
pub(super) async fn close(
    driver: &mut impl Driver,
    names: &SqliteNames,
    lanes: &[(i64, &str)],
) -> Result<(), Error> {
    let bind =
        |close: Statement<'static>, (queue, key): &(i64, &str)| close.bind(*queue).bind((*key).to_owned());
    query_each(driver, names, &sql!(CLOSE), lanes, bind).await.map(|_| ())
}

/// A lane that may be claimed.
#[derive(Debug)]
pub(super) struct RunnableLane {
    pub(super) turn: i64,
    pub(super) key: String,
    /// The leases that expired on its head, including the last one.
    pub(super) expired_leases: u32,
}

/// Free lanes, lanes with an expired lease, and blocked lanes that have come due, each from its own index.
pub(super) const RUNNABLE: &str = "select turn, key, expired_leases from ( \
      select * from (select turn, key, expired_leases from {lane} indexed by {lane_free} \
        where queue = ?1 and token is null and due_at is null order by turn limit ?2) \
      union all select * from (select turn, key, expired_leases + 1 from {lane} indexed by {lane_leased} \
        where queue = ?1 and token is not null and lease_until <= ?3 order by lease_until limit ?2) \
      union all select * from (select turn, key, expired_leases from {lane} indexed by {lane_due} \
        where queue = ?1 and due_at is not null and due_at <= ?3 order by due_at limit ?2)) \
    order by turn limit ?2";

/// The lanes that may be claimed; those that have waited longest come first.
pub(super) async fn runnable(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    queue: i64,
    limit: usize,
    now: Micros,
) -> Result<Vec<RunnableLane>, Error> {
    let sql = names.sql(&sql!(RUNNABLE));
    let query = sql.query().bind(queue).bind(sql_limit(limit)).bind(now);
    let rows = query.fetch_all(connection).await.map_err(store_error)?;
    let runnable = rows.iter().map(|row| {
        Ok(RunnableLane {
            turn: row.try_get(0)?,
            key: row.try_get(1)?,
            expired_leases: super::row::count(row, 2)?,
        })
    });
    runnable.collect::<Result<_, _>>().map_err(store_error)
}

/// The first positions of each lane, as an array: a join would have a second query plan, which scans.
pub(super) const HEADS: &str = "select j.key, (select json_group_array(h.id) from ( \
      select r.id from {ready} r indexed by {ready_key} \
      where r.queue = j.value ->> 0 and r.key = j.value ->> 1 and r.ordered = 1 order by r.id limit ?2) h) \
    from json_each(?1) j";

/// Up to `limit` positions of each lane, in order.
pub(super) async fn heads(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    lanes: &[(i64, &str)],
    limit: usize,
) -> Result<Vec<Vec<i64>>, Error> {
    let requested = json(lanes.iter().map(|(queue, key)| Value::Array(vec![(*queue).into(), (*key).into()])));
    let sql = names.sql(&sql!(HEADS));
    let rows = sql
        .query()
        .bind(requested)
        .bind(sql_limit(limit))
        .fetch_all(connection)
        .await
        .map_err(store_error)?;
    let mut heads = vec![Vec::new(); lanes.len()];
    for row in rows {
        let index: i64 = row.try_get(0).map_err(store_error)?;
        let positions: &str = row.try_get(1).map_err(store_error)?;
        if let Some(slot) = usize::try_from(index).ok().and_then(|index| heads.get_mut(index)) {
            *slot = serde_json::from_str(positions).map_err(|error| Error::Other(error.into()))?;
            slot.sort_unstable();
        }
    }
    Ok(heads)
}

/// Counts a lease that was not settled.
pub(super) const LEASE: &str = "update {lane} set expired_leases = expired_leases + (token is not null), token = ?, lease_until = ?, \
    due_at = null, reason = null, error = null where queue = ? and key = ?";

/// Begins the turns of lanes.
pub(super) async fn lease(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    lanes: &[(i64, &str)],
    token: Uuid,
    until: Micros,
) -> Result<(), Error> {
    let bind = |lease: Statement<'static>, (queue, key): &(i64, &str)| {
        lease.bind(token).bind(until).bind(*queue).bind((*key).to_owned())
    };
    query_each(connection, names, &sql!(LEASE), lanes, bind).await.map(|_| ())
}
