//! Checking and renewing leases, and counting deliveries in isolation.
//!
//! A lease is held by its token, which is stored with the message or, on ordered queues, with its lane. Time does not matter: an
//! expired lease still belongs to its holder until another worker claims the message.

use super::{
    SqliteNames,
    error::store_error,
    row::{hex, json},
    statement::Statement,
    statement_batch::query_each,
    timestamp::after,
    writer::Write,
};
use postrider_core::{Error, Lease};
use serde_json::Value;
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};
use std::{collections::BTreeSet, time::Duration};
use uuid::Uuid;

/// The message of a lease, as it is in `ready`.
#[derive(Debug, Clone)]
pub(super) struct LeasedRow {
    pub(super) queue: i64,
    pub(super) position: i64,
    pub(super) id: Uuid,
    pub(super) timer: Option<String>,
    token: Option<Uuid>,
    pub(super) lane: Option<LaneState>,
}

/// The lane that a message of an ordered queue is in.
#[derive(Debug, Clone)]
pub(super) struct LaneState {
    pub(super) key: String,
    pub(super) token: Option<Uuid>,
    pub(super) expired_leases: u32,
    /// The first position of the lane.
    pub(super) head: i64,
}

impl LeasedRow {
    /// Whether the lease is the current one.
    pub(super) fn is_held_by(&self, lease: &Lease) -> bool {
        let token = Some(lease.token().as_uuid());
        match (lease.turn(), &self.lane) {
            (None, None) => self.token == token,
            (Some(turn), Some(lane)) => {
                turn.key.as_str() == lane.key && turn.position == self.position && lane.token == token
            }
            _ => false,
        }
    }
}

pub(super) const LEASED_ROWS: &str = "select j.key, r.queue, r.id, r.timer, r.token, r.ordered, r.key, l.token, l.expired_leases, r.message_id, \
      case r.ordered when 1 then (select min(h.id) from {ready} h \
        where h.queue = r.queue and h.key = r.key and h.ordered = 1) end \
    from json_each(?1) j \
    cross join {queue} q on q.name = j.value ->> 0 \
    cross join {ready} r on r.message_id = unhex(j.value ->> 1) and r.queue = q.id \
    left join {lane} l on r.ordered = 1 and l.queue = r.queue and l.key = r.key";

/// The row of each lease's message, or `None` if the message is not in `ready`.
pub(super) async fn leased_rows<'l>(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    leases: impl ExactSizeIterator<Item = &'l Lease>,
) -> Result<Vec<Option<LeasedRow>>, Error> {
    let mut leased_rows = vec![None; leases.len()];
    let requested =
        json(leases.map(|lease| {
            Value::Array(vec![lease.queue().as_str().into(), hex(lease.id().as_uuid()).into()])
        }));
    let sql = names.sql(&sql!(LEASED_ROWS));
    for row in sql.query().bind(requested).fetch_all(connection).await.map_err(store_error)? {
        let index: i64 = row.try_get(0).map_err(store_error)?;
        if let Some(slot) = usize::try_from(index).ok().and_then(|index| leased_rows.get_mut(index)) {
            *slot = Some(leased_row(&row).map_err(store_error)?);
        }
    }
    Ok(leased_rows)
}

fn leased_row(row: &SqliteRow) -> Result<LeasedRow, sqlx::Error> {
    let lane = if row.try_get(5)? {
        Some(LaneState {
            key: row.try_get(6)?,
            token: row.try_get(7)?,
            expired_leases: super::row::count(row, 8)?,
            head: row.try_get(10)?,
        })
    } else {
        None
    };
    Ok(LeasedRow {
        queue: row.try_get(1)?,
        position: row.try_get(2)?,
        id: row.try_get(9)?,
        timer: row.try_get(3)?,
        token: row.try_get(4)?,
        lane,
    })
}

pub(super) const RENEW_LANES: &str = "update {lane} set lease_until = ? where queue = ? and key = ?";

/// Counts a delivery that begins in isolation. Returns whether the lease is still held.
pub(super) async fn count_isolated(
    write: &mut Write,
    names: &SqliteNames,
    lease: &Lease,
) -> Result<bool, Error> {
    let connection = &mut write.connection;
    let rows = leased_rows(connection, names, std::iter::once(lease)).await?;
    let held = rows.into_iter().flatten().find(|row| row.is_held_by(lease));
    let Some(row) = held else { return Ok(false) };
    let sql = names.sql(&sql!("update {ready} set isolated = isolated + 1 where id = ?1"));
    sql.query().bind(row.position).execute(connection).await.map_err(store_error)?;
    Ok(true)
}

/// Renews leases and returns those that were lost.
pub(super) async fn renew(
    write: &mut Write,
    names: &SqliteNames,
    leases: &[Lease],
    lease_for: Duration,
) -> Result<Vec<Lease>, Error> {
    let until = after(write.now, lease_for);
    let connection = &mut write.connection;
    let leased_rows = leased_rows(connection, names, leases.iter()).await?;
    let (mut positions, mut lanes, mut lost) = (Vec::new(), BTreeSet::new(), Vec::new());
    for (lease, row) in leases.iter().zip(leased_rows) {
        match row.filter(|row| row.is_held_by(lease)) {
            None => lost.push(lease.clone()),
            Some(LeasedRow { queue, lane: Some(lane), .. }) => _ = lanes.insert((queue, lane.key)),
            Some(row) => positions.push(row.position),
        }
    }
    let bind = |renew: Statement<'static>, position: &i64| renew.bind(until).bind(*position);
    query_each(connection, names, &sql!("update {ready} set lease_until = ? where id = ?"), &positions, bind)
        .await?;
    let lanes = Vec::from_iter(lanes);
    let bind = |renew: Statement<'static>, (queue, key): &(i64, String)| {
        renew.bind(until).bind(*queue).bind(key.clone())
    };
    query_each(connection, names, &sql!(RENEW_LANES), &lanes, bind).await?;
    Ok(lost)
}
