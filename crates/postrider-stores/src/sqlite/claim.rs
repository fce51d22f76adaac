//! Claiming: who goes next, and under what lease.
//!
//! Every queue offers what could run: an unordered one its free messages, an ordered one its lanes. The offers that have
//! waited longest win, whichever queue they are in; each is good for at least one message, and what is left of the limit lets
//! the first lanes hand out more of their messages.
//!
//! A claim first looks, without the write lock: when nothing is due, which is an idle worker's usual answer, it has disturbed
//! nobody and waited for nobody. What it reads and what it writes is bounded by an index and the limit: what is leased, what is
//! blocked and what lies ahead is in other indexes.

use super::{
    Names,
    each::{each, each_place},
    error::store_error,
    lanes,
    moment::{Micros, after},
    queues::{self, Queue},
    row::{self, BODY, COLUMNS, json, limit},
    statement::Statement,
    writer::Write,
};
use postrider_core::{
    ClaimRequest, Claimed, Error, Lease, LeaseToken, MessageId, OrderingKey, QueueName, lease::Turn,
};
use sqlx::{Row, SqliteConnection, SqlitePool, sqlite::SqliteRow};
use std::collections::HashMap;
use uuid::Uuid;

/// How many messages a lane hands out in one turn, at the most.
const TURN: usize = 16;

/// Whether anything is due.
pub(super) const LOOK: &str = "select exists (select 1 from {queue} q \
    where q.name in (select j.value from json_each(?1) j) and ( \
      (q.ordered = 0 and ( \
        exists (select 1 from {ready} r indexed by {ready_free} where r.queue = q.id and r.token is null) or \
        exists (select 1 from {ready} r indexed by {ready_leased} where r.queue = q.id and r.token is not null and r.lease_until <= {now}))) or \
      (q.ordered = 1 and ( \
        exists (select 1 from {lane} l indexed by {lane_free} where l.queue = q.id and l.token is null and l.due_at is null) or \
        exists (select 1 from {lane} l indexed by {lane_leased} where l.queue = q.id and l.token is not null and l.lease_until <= {now}) or \
        exists (select 1 from {lane} l indexed by {lane_due} where l.queue = q.id and l.due_at is not null and l.due_at <= {now}))) or \
      exists (select 1 from {later} w indexed by {later_due} where w.queue = q.id and w.due_at <= {now})))";

pub(super) async fn is_anything_due(
    readers: &SqlitePool,
    names: &Names,
    wanted: &[QueueName],
) -> Result<bool, Error> {
    let wanted = json(wanted.iter().map(QueueName::as_str));
    let row = names.sql(LOOK).query().bind(wanted).fetch_one(readers).await;
    row.and_then(|row| row.try_get(0)).map_err(store_error)
}

/// Something of a queue that could run.
struct Offer<'q> {
    since: i64,
    queue: &'q Queue,
    lane: Option<(String, u32)>,
}

pub(super) async fn claim(
    write: &mut Write,
    names: &Names,
    request: &ClaimRequest,
) -> Result<Vec<Claimed>, Error> {
    let (now, most) = (write.now, request.limit());
    let connection = &mut write.connection;
    let queues = queues::existing(&mut *connection, names, request.queues()).await?;
    let mut offers = Vec::new();
    for queue in &queues {
        promote(connection, names, queue, most, now).await?;
        if queue.is_ordered() {
            let runnable = lanes::runnable(connection, names, queue.number, most, now).await?;
            offers.extend(runnable.into_iter().map(|lane| Offer {
                since: lane.turn_at,
                queue,
                lane: Some((lane.key, lane.lapses)),
            }));
        } else {
            let free = free(connection, names, queue.number, most, now).await?;
            offers.extend(free.into_iter().map(|since| Offer { since, queue, lane: None }));
        }
    }
    offers.sort_unstable_by_key(|offer| offer.since);
    offers.truncate(most);

    let held = Held { token: Uuid::new_v4(), until: after(now, request.lease_for()) };
    let spare = most - offers.len();
    let (in_lanes, messages): (Vec<_>, Vec<_>) = offers.into_iter().partition(|offer| offer.lane.is_some());
    let mut claimed = Vec::with_capacity(most.min(1024));
    if !messages.is_empty() {
        let places: Vec<_> = messages.iter().map(|offer| offer.since).collect();
        claimed.extend(lease_messages(connection, names, &queues, &places, held).await?);
    }
    if !in_lanes.is_empty() {
        claimed.extend(lease_lanes(connection, names, &in_lanes, spare, held).await?);
    }
    claimed.sort_unstable_by_key(|(place, _)| *place);
    Ok(claimed.into_iter().map(|(_, claimed)| claimed).collect())
}

#[derive(Debug, Clone, Copy)]
struct Held {
    token: Uuid,
    until: Micros,
}

/// What is free, and what has lapsed, each from its own index.
pub(super) const FREE: &str = "select id from ( \
      select * from (select id from {ready} indexed by {ready_free} where queue = ?1 and token is null order by id limit ?2) \
      union all select * from (select id from {ready} indexed by {ready_leased} \
        where queue = ?1 and token is not null and lease_until <= ?3 order by lease_until, id limit ?2)) \
    order by id limit ?2";

async fn free(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: i64,
    most: usize,
    now: Micros,
) -> Result<Vec<i64>, Error> {
    let sql = names.sql(FREE);
    let query = sql.query().bind(queue).bind(limit(most)).bind(now);
    let rows = query.fetch_all(connection).await.map_err(store_error)?;
    rows.iter().map(|row| row.try_get(0).map_err(store_error)).collect()
}

pub(super) fn lease_template() -> String {
    format!(
        "update {{ready}} set token = ?, lease_until = ?, deliveries = deliveries + 1, ripe = 0 where id = ? \
         returning id, queue, ripe, deliveries, attempts, staged_at, due_at, {COLUMNS}"
    )
}

async fn lease_messages(
    connection: &mut SqliteConnection,
    names: &Names,
    queues: &[Queue],
    places: &[i64],
    held: Held,
) -> Result<Vec<(i64, Claimed)>, Error> {
    let by_number: HashMap<i64, &Queue> = queues.iter().map(|queue| (queue.number, queue)).collect();
    let bind = |lease: Statement<'static>, place: &i64| lease.bind(held.token).bind(held.until).bind(*place);
    let mut claimed = Vec::with_capacity(places.len());
    for row in each(connection, names, &lease_template(), places, bind).await? {
        let number: i64 = row.try_get(1).map_err(store_error)?;
        let Some(queue) = by_number.get(&number) else { continue };
        let row = Found::read(&row, queue).map_err(store_error)?;
        let lease = Lease::new(queue.name.clone(), row.id(), LeaseToken::from_uuid(held.token));
        claimed.push((row.place, row.claimed(lease, 0)));
    }
    Ok(claimed)
}

/// Begins the turns of lanes. Each hands out at least its head; what is left of the limit goes to the first of them. After a
/// lapse the head comes alone: it may be what kills workers.
async fn lease_lanes(
    connection: &mut SqliteConnection,
    names: &Names,
    offers: &[Offer<'_>],
    mut spare: usize,
    held: Held,
) -> Result<Vec<(i64, Claimed)>, Error> {
    let keys: Vec<(i64, &str, u32)> = offers
        .iter()
        .filter_map(|offer| {
            offer.lane.as_ref().map(|(key, lapses)| (offer.queue.number, key.as_str(), *lapses))
        })
        .collect();
    let lanes: Vec<_> = keys.iter().map(|(queue, key, _)| (*queue, *key)).collect();
    let heads = lanes::heads(connection, names, &lanes, TURN.min(1 + spare)).await?;
    lanes::lease(connection, names, &lanes, held.token, held.until).await?;

    let mut turns = HashMap::new();
    for ((offer, (_, key, lapses)), mut places) in offers.iter().zip(keys).zip(heads) {
        places.truncate(if lapses > 0 { 1 } else { 1 + spare });
        spare -= places.len().saturating_sub(1);
        for place in &places {
            let turn =
                Turn { key: OrderingKey::stored(key), place: *place, last: Some(place) == places.last() };
            turns.insert(*place, (offer.queue, turn, lapses));
        }
    }
    let sql = names.sql(&fetch_template());
    let rows = sql.query().bind(json(turns.keys().copied())).fetch_all(&mut *connection).await;
    let mut claimed = Vec::with_capacity(turns.len());
    let mut ripe = Vec::new();
    for row in rows.map_err(store_error)? {
        let place: i64 = row.try_get(0).map_err(store_error)?;
        let Some((queue, turn, lapses)) = turns.remove(&place) else { continue };
        let row = Found::read(&row, queue).map_err(store_error)?;
        if row.ripe {
            ripe.push(place);
        }
        let lease = Lease::new(queue.name.clone(), row.id(), LeaseToken::from_uuid(held.token)).in_turn(turn);
        // The claim of a turn is counted when the message is settled; its row is not touched before.
        claimed.push((place, row.claimed(lease, lapses.saturating_add(1))));
    }
    if !ripe.is_empty() {
        each_place(connection, names, "update {ready} set ripe = 0 where id = ?", &ripe).await?;
    }
    Ok(claimed)
}

pub(super) fn fetch_template() -> String {
    format!(
        "select r.id, queue, ripe, deliveries, attempts, staged_at, due_at, {COLUMNS} \
         from (select value as place from json_each(?1)) j cross join {{ready}} r on r.id = j.place"
    )
}

/// A row of `ready`, as both statements answer it.
struct Found {
    place: i64,
    ripe: bool,
    claimed: Claimed,
}

impl Found {
    fn read(row: &SqliteRow, queue: &Queue) -> Result<Self, sqlx::Error> {
        let message = row::message(row, 7, &queue.name)?;
        let id = MessageId::from_uuid(row.try_get(7)?);
        Ok(Self {
            place: row.try_get(0)?,
            ripe: row.try_get(2)?,
            claimed: Claimed {
                message,
                lease: Lease::new(queue.name.clone(), id, LeaseToken::from_uuid(Uuid::nil())),
                deliveries: row::count(row, 3)?,
                attempts: row::count(row, 4)?,
                staged_at: row::time(row, 5)?,
                due_at: row::time(row, 6)?,
            },
        })
    }

    fn id(&self) -> MessageId {
        self.claimed.id()
    }

    fn claimed(self, lease: Lease, uncounted: u32) -> Claimed {
        Claimed { lease, deliveries: self.claimed.deliveries.saturating_add(uncounted), ..self.claimed }
    }
}

/// What has come due, oldest first.
pub(super) const COME: &str = "select id from {later} indexed by {later_due} where queue = ?1 and due_at <= ?2 order by due_at, id limit ?3";

pub(super) fn promote_template() -> String {
    format!(
        "insert into {{ready}} (id, due_at, ripe, {BODY}) \
         select ?2 + j.turn, due_at, 1, {BODY} \
         from (select value as place, key as turn from json_each(?1)) j cross join {{later}} w on w.id = j.place"
    )
}

/// What has come due takes its place in the line, up to as many messages as are asked for.
async fn promote(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: &Queue,
    most: usize,
    now: Micros,
) -> Result<(), Error> {
    let sql = names.sql(COME);
    let query = sql.query().bind(queue.number).bind(now).bind(limit(most));
    let rows = query.fetch_all(&mut *connection).await.map_err(store_error)?;
    if rows.is_empty() {
        return Ok(());
    }
    let come = rows.iter().map(|row| row.try_get::<i64, _>(0));
    let come = come.collect::<Result<Vec<_>, _>>().map_err(store_error)?;
    let (first, _) = queues::draw(connection, names, rows.len()).await?;
    let sql = names.sql(&promote_template());
    sql.query()
        .bind(json(come.iter().copied()))
        .bind(first)
        .execute(&mut *connection)
        .await
        .map_err(store_error)?;
    each_place(connection, names, "delete from {later} where id = ?", &come).await?;
    if queue.is_ordered() {
        lanes::open(connection, names, first..first + limit(rows.len())).await?;
    }
    Ok(())
}
