//! Which leases are still good, and extending them.
//!
//! A claim belongs to whoever holds the token that the message or, on ordered queues, its lane carries. Time plays no part: a
//! lapsed lease that nobody retook is still its owner's.

use super::{
    Names,
    each::each,
    error::store_error,
    moment::after,
    row::{hex, json},
    statement::Statement,
    writer::Write,
};
use postrider_core::{Error, Lease};
use serde_json::Value;
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};
use std::{collections::BTreeSet, time::Duration};
use uuid::Uuid;

/// Where the message of a lease stands.
#[derive(Debug, Clone)]
pub(super) struct Stand {
    pub(super) queue: i64,
    pub(super) place: i64,
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
    pub(super) lapses: u32,
    /// The first place of the lane.
    pub(super) head: i64,
}

impl Stand {
    /// Whether the lease is the one that the store keeps.
    pub(super) fn is_held_by(&self, lease: &Lease) -> bool {
        let token = Some(lease.token().as_uuid());
        match (lease.turn(), &self.lane) {
            (None, None) => self.token == token,
            (Some(turn), Some(lane)) => {
                turn.key.as_str() == lane.key && turn.place == self.place && lane.token == token
            }
            _ => false,
        }
    }
}

pub(super) const STANDS: &str = "select j.key, r.queue, r.id, r.timer, r.token, r.ordered, r.key, l.token, l.lapses, r.message_id, \
      case r.ordered when 1 then (select min(h.id) from {ready} h \
        where h.queue = r.queue and h.key = r.key and h.ordered = 1) end \
    from json_each(?1) j \
    cross join {queue} q on q.name = j.value ->> 0 \
    cross join {ready} r on r.message_id = unhex(j.value ->> 1) and r.queue = q.id \
    left join {lane} l on r.ordered = 1 and l.queue = r.queue and l.key = r.key";

/// Where the message of each lease stands, if it is in `ready` at all.
pub(super) async fn stands<'l>(
    connection: &mut SqliteConnection,
    names: &Names,
    leases: impl ExactSizeIterator<Item = &'l Lease>,
) -> Result<Vec<Option<Stand>>, Error> {
    let mut stands = vec![None; leases.len()];
    let asked =
        json(leases.map(|lease| {
            Value::Array(vec![lease.queue().as_str().into(), hex(lease.id().as_uuid()).into()])
        }));
    for row in names.sql(STANDS).query().bind(asked).fetch_all(connection).await.map_err(store_error)? {
        let index: i64 = row.try_get(0).map_err(store_error)?;
        if let Some(slot) = usize::try_from(index).ok().and_then(|index| stands.get_mut(index)) {
            *slot = Some(stand(&row).map_err(store_error)?);
        }
    }
    Ok(stands)
}

fn stand(row: &SqliteRow) -> Result<Stand, sqlx::Error> {
    let lane = if row.try_get(5)? {
        Some(LaneState {
            key: row.try_get(6)?,
            token: row.try_get(7)?,
            lapses: super::row::count(row, 8)?,
            head: row.try_get(10)?,
        })
    } else {
        None
    };
    Ok(Stand {
        queue: row.try_get(1)?,
        place: row.try_get(2)?,
        id: row.try_get(9)?,
        timer: row.try_get(3)?,
        token: row.try_get(4)?,
        lane,
    })
}

pub(super) const RENEW_LANES: &str = "update {lane} set lease_until = ? where queue = ? and key = ?";

/// Extends leases, and answers with those that were lost.
pub(super) async fn renew(
    write: &mut Write,
    names: &Names,
    leases: &[Lease],
    lease_for: Duration,
) -> Result<Vec<Lease>, Error> {
    let until = after(write.now, lease_for);
    let connection = &mut write.connection;
    let stands = stands(connection, names, leases.iter()).await?;
    let (mut places, mut lanes, mut lost) = (Vec::new(), BTreeSet::new(), Vec::new());
    for (lease, stand) in leases.iter().zip(stands) {
        match stand.filter(|stand| stand.is_held_by(lease)) {
            None => lost.push(lease.clone()),
            Some(Stand { queue, lane: Some(lane), .. }) => _ = lanes.insert((queue, lane.key)),
            Some(stand) => places.push(stand.place),
        }
    }
    let bind = |renew: Statement<'static>, place: &i64| renew.bind(until).bind(*place);
    each(connection, names, "update {ready} set lease_until = ? where id = ?", &places, bind).await?;
    let lanes = Vec::from_iter(lanes);
    let bind = |renew: Statement<'static>, (queue, key): &(i64, String)| {
        renew.bind(until).bind(*queue).bind(key.clone())
    };
    each(connection, names, RENEW_LANES, &lanes, bind).await?;
    Ok(lost)
}
