//! The lanes of queues that are ordered by key: the key is leased, not the message.
//!
//! A lane lives as long as its key has messages in `ready`: whoever puts a message there opens the lane, in the same
//! transaction, and whoever takes the last one away closes it. It is *free*, *leased* or *blocked*; a lapsed lease and a blocked lane
//! that has come due are as good as free. Each of the three has an index of its own, so finding those that may run never walks over
//! those that may not.
//!
//! Turns are fair because lanes form a ring: a lane that ends its turn goes to the tail. Tails and places are drawn from one
//! line, so that keys and unordered messages can be compared by who has waited longest.
//!
//! A worker that dies leaves nothing but a lapsed lease. It is counted on the lane (`lapses`), and while there are any, the head
//! is handed out alone: the message that kills workers is found, and its neighbours are not blamed.

use super::{
    Names,
    drivers::{Cells, Driver, first},
    each::each,
    error::store_error,
    moment::Micros,
    row::{json, limit},
    statement::Statement,
};
use postrider_core::Error;
use serde_json::Value;
use sqlx::{Row, SqliteConnection};
use std::ops::Range;
use uuid::Uuid;

pub(super) const OPEN: &str = "insert into {lane} (queue, key, turn_at) select r.queue, r.key, min(r.id) \
    from {ready} r not indexed \
    where r.id >= ?1 and r.id < ?2 and r.ordered = 1 group by r.queue, r.key \
    on conflict (queue, key) do nothing";

/// Opens the lanes of messages that have just been put at these places of `ready`, where they are not open yet.
pub(super) async fn open(driver: &mut impl Driver, names: &Names, places: Range<i64>) -> Result<(), Error> {
    driver.execute(names.statement(OPEN).bind(places.start).bind(places.end)).await?;
    Ok(())
}

/// Takes a message out of `ready`, and out of its lane. Lapses are the head's, and leave with it; a lane without messages
/// disappears.
pub(super) async fn take(driver: &mut impl Driver, names: &Names, queue: i64, id: Uuid) -> Result<(), Error> {
    let delete = names
        .statement("delete from {ready} where message_id = ?1 and queue = ?2 returning id, key, ordered");
    let Some(row) = first(driver, delete.bind(id).bind(queue)).await? else { return Ok(()) };
    if !row.get::<bool>(2)? {
        return Ok(());
    }
    let (place, key): (i64, String) = (row.get(0)?, row.get(1)?);
    let forget = names.statement(
        "update {lane} set lapses = 0 where queue = ?1 and key = ?2 and lapses > 0 and not exists ( \
         select 1 from {ready} r where r.queue = ?1 and r.key = ?2 and r.ordered = 1 and r.id < ?3)",
    );
    driver.execute(forget.bind(queue).bind(key.as_str()).bind(place)).await?;
    close(driver, names, &[(queue, key.as_str())]).await
}

pub(super) const CLOSE: &str = "delete from {lane} where queue = ? and key = ? and not exists ( \
    select 1 from {ready} r where r.queue = {lane}.queue and r.key = {lane}.key and r.ordered = 1)";

/// Closes those of the lanes that have no messages any more.
pub(super) async fn close(
    driver: &mut impl Driver,
    names: &Names,
    lanes: &[(i64, &str)],
) -> Result<(), Error> {
    let bind =
        |close: Statement<'static>, (queue, key): &(i64, &str)| close.bind(*queue).bind((*key).to_owned());
    each(driver, names, CLOSE, lanes, bind).await.map(|_| ())
}

/// A lane that may have a turn.
#[derive(Debug)]
pub(super) struct Runnable {
    pub(super) turn_at: i64,
    pub(super) key: String,
    /// The leases that lapsed on its head, the last one included.
    pub(super) lapses: u32,
}

/// Free lanes, lapsed ones, and blocked ones that have come due, each from its own index.
pub(super) const RUNNABLE: &str = "select turn_at, key, lapses from ( \
      select * from (select turn_at, key, lapses from {lane} indexed by {lane_free} \
        where queue = ?1 and token is null and due_at is null order by turn_at limit ?2) \
      union all select * from (select turn_at, key, lapses + 1 from {lane} indexed by {lane_leased} \
        where queue = ?1 and token is not null and lease_until <= ?3 order by lease_until limit ?2) \
      union all select * from (select turn_at, key, lapses from {lane} indexed by {lane_due} \
        where queue = ?1 and due_at is not null and due_at <= ?3 order by due_at limit ?2)) \
    order by turn_at limit ?2";

/// The lanes that may have a turn, those that have waited longest first.
pub(super) async fn runnable(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: i64,
    most: usize,
    now: Micros,
) -> Result<Vec<Runnable>, Error> {
    let sql = names.sql(RUNNABLE);
    let query = sql.query().bind(queue).bind(limit(most)).bind(now);
    let rows = query.fetch_all(connection).await.map_err(store_error)?;
    let runnable = rows.iter().map(|row| {
        Ok(Runnable { turn_at: row.try_get(0)?, key: row.try_get(1)?, lapses: super::row::count(row, 2)? })
    });
    runnable.collect::<Result<_, _>>().map_err(store_error)
}

/// The first places of each lane, as an array: a join would have a second plan, which scans.
pub(super) const HEADS: &str = "select j.key, (select json_group_array(h.id) from ( \
      select r.id from {ready} r indexed by {ready_key} \
      where r.queue = j.value ->> 0 and r.key = j.value ->> 1 and r.ordered = 1 order by r.id limit ?2) h) \
    from json_each(?1) j";

/// Up to `most` places of each lane, in order.
pub(super) async fn heads(
    connection: &mut SqliteConnection,
    names: &Names,
    lanes: &[(i64, &str)],
    most: usize,
) -> Result<Vec<Vec<i64>>, Error> {
    let asked = json(lanes.iter().map(|(queue, key)| Value::Array(vec![(*queue).into(), (*key).into()])));
    let sql = names.sql(HEADS);
    let rows = sql.query().bind(asked).bind(limit(most)).fetch_all(connection).await.map_err(store_error)?;
    let mut heads = vec![Vec::new(); lanes.len()];
    for row in rows {
        let index: i64 = row.try_get(0).map_err(store_error)?;
        let places: &str = row.try_get(1).map_err(store_error)?;
        if let Some(slot) = usize::try_from(index).ok().and_then(|index| heads.get_mut(index)) {
            *slot = serde_json::from_str(places).map_err(|error| Error::Other(error.into()))?;
            slot.sort_unstable();
        }
    }
    Ok(heads)
}

/// A lease that nobody ended is counted.
pub(super) const LEASE: &str = "update {lane} set lapses = lapses + (token is not null), token = ?, lease_until = ?, \
    due_at = null, reason = null, error = null where queue = ? and key = ?";

/// Begins the turns of lanes.
pub(super) async fn lease(
    connection: &mut SqliteConnection,
    names: &Names,
    lanes: &[(i64, &str)],
    token: Uuid,
    until: Micros,
) -> Result<(), Error> {
    let bind = |lease: Statement<'static>, (queue, key): &(i64, &str)| {
        lease.bind(token).bind(until).bind(*queue).bind((*key).to_owned())
    };
    each(connection, names, LEASE, lanes, bind).await.map(|_| ())
}
