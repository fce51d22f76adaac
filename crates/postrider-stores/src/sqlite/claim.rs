//! Claiming: who goes next, and under what lease.
//!
//! Every queue offers what could run: an unordered one its free messages, an ordered one its lanes. The offers that have
//! waited longest win, whichever queue they are in; each is good for at least one message, and what is left of the limit lets
//! the first lanes hand out more of their messages. Where tenants take turns (`fair.rs`), offers come in the order of turns.
//!
//! A claim first looks, without the write lock: when nothing is due, which is an idle worker's usual answer, it has disturbed
//! nobody and waited for nobody. What it reads and what it writes is bounded by an index and the limit: what is leased, what is
//! blocked and what lies ahead is in other indexes.

use super::{
    Names,
    each::{each, each_place},
    error::store_error,
    fair, lanes,
    moment::{Micros, after},
    queues::{self, Queue},
    row::{self, BODY, COLUMNS, json, limit},
    statement::Statement,
    writer::Write,
};
use crate::turns::{COME_DUE, Turns};
use postrider_core::{
    ClaimRequest, Claimed, Error, Lease, LeaseToken, Message, MessageId, OrderingKey, QueueName, lease::Turn,
};
use sqlx::{Row, SqliteConnection, SqlitePool, sqlite::SqliteRow};
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::SystemTime,
};
use uuid::Uuid;

/// How many messages a lane hands out in one turn, at the most.
const TURN: usize = 16;

/// Whether anything is due.
pub(super) const LOOK: &str = "select exists (select 1 from {queue} q \
    where q.name in (select j.value from json_each(?1) j) \
      and not exists (select 1 from {pause} p where p.kind = 'queue' and p.name = q.name) and ( \
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
    what: What,
}

/// What it is.
enum What {
    Free,
    Lapsed,
    /// A message whose tenant has a turn.
    Turn {
        place: i64,
        tenant: String,
    },
    Lane {
        key: String,
        lapses: u32,
    },
}

pub(super) async fn claim(
    write: &mut Write,
    names: &Names,
    request: &ClaimRequest,
    turns: &Mutex<HashMap<i64, Turns>>,
) -> Result<Vec<Claimed>, Error> {
    let (now, most) = (write.now, request.limit());
    let connection = &mut write.connection;
    let mut queues = queues::existing(&mut *connection, names, request.queues()).await?;
    queues.retain(|queue| !queue.is_paused);
    let mut offers = Vec::new();
    for queue in &queues {
        let at_once = if queue.policy.fair_by_tenant { most.max(COME_DUE) } else { most };
        promote(connection, names, queue, at_once, now).await?;
        if queue.is_ordered() {
            let runnable = lanes::runnable(connection, names, queue.number, most, now).await?;
            offers.extend(runnable.into_iter().map(|lane| Offer {
                since: lane.turn_at,
                queue,
                what: What::Lane { key: lane.key, lapses: lane.lapses },
            }));
        } else if queue.policy.fair_by_tenant {
            let turns = lock(turns).entry(queue.number).or_default().clone();
            for pick in fair::picks(connection, names, queue.number, request, &turns, now).await? {
                let what = What::Turn { place: pick.place, tenant: pick.tenant };
                offers.push(Offer { since: pick.since, queue, what });
            }
        } else {
            for (since, has_lapsed) in free(connection, names, queue.number, most, now).await? {
                let what = if has_lapsed { What::Lapsed } else { What::Free };
                offers.push(Offer { since, queue, what });
            }
        }
    }
    offers.sort_unstable_by_key(|offer| offer.since);
    offers.truncate(most);

    let held = Held { token: Uuid::new_v4(), until: after(now, request.lease_for()) };
    let spare = most - offers.len();
    let (in_lanes, messages): (Vec<_>, Vec<_>) =
        offers.into_iter().partition(|offer| matches!(offer.what, What::Lane { .. }));
    let mut claimed = Vec::with_capacity(most.min(1024));
    for queue in &queues {
        lease_messages(connection, names, queue, &messages, held, &mut claimed).await?;
        if queue.policy.fair_by_tenant {
            let own = messages.iter().filter(|offer| offer.queue.number == queue.number);
            let tenants = own.filter_map(|offer| match &offer.what {
                What::Turn { tenant, .. } => Some(tenant.as_str()),
                _ => None,
            });
            lock(turns).entry(queue.number).or_default().charge(request.tenant_weights(), tenants);
        }
    }
    if !in_lanes.is_empty() {
        claimed.extend(lease_lanes(connection, names, &in_lanes, spare, held).await?);
    }
    claimed.sort_unstable_by_key(|(place, _)| *place);
    Ok(claimed.into_iter().map(|(_, claimed)| claimed).collect())
}

fn lock(turns: &Mutex<HashMap<i64, Turns>>) -> std::sync::MutexGuard<'_, HashMap<i64, Turns>> {
    turns.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Clone, Copy)]
struct Held {
    token: Uuid,
    until: Micros,
}

/// What is free, and what has lapsed, each from its own index.
pub(super) const FREE: &str = "select id, has_lapsed from ( \
      select * from (select id, 0 as has_lapsed from {ready} indexed by {ready_free} \
        where queue = ?1 and token is null order by id limit ?2) \
      union all select * from (select id, 1 from {ready} indexed by {ready_leased} \
        where queue = ?1 and token is not null and lease_until <= ?3 order by lease_until, id limit ?2)) \
    order by id limit ?2";

async fn free(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: i64,
    most: usize,
    now: Micros,
) -> Result<Vec<(i64, bool)>, Error> {
    let sql = names.sql(FREE);
    let query = sql.query().bind(queue).bind(limit(most)).bind(now);
    let rows = query.fetch_all(connection).await.map_err(store_error)?;
    let free = rows.iter().map(|row| Ok((row.try_get_unchecked(0)?, row.try_get_unchecked(1)?)));
    free.collect::<Result<_, _>>().map_err(store_error)
}

const LEASED: &str = "set token = ?, lease_until = ?, deliveries = deliveries + 1, ripe = 0";
pub(super) const RETURNED: &str = "returning id, queue, ripe, deliveries, attempts, staged_at, due_at";

/// What is free up to a place: those that are first in the line. The index allows for one plan only.
pub(super) fn lease_free_template() -> String {
    format!(
        "update {{ready}} indexed by {{ready_free}} {LEASED} where queue = ? and token is null and id <= ? \
         {RETURNED}, {COLUMNS}"
    )
}

/// One by its place: its lease has lapsed, or its tenant has a turn.
pub(super) fn lease_lapsed_template() -> String {
    format!("update {{ready}} {LEASED} where id = ? {RETURNED}, {COLUMNS}")
}

async fn lease_messages(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: &Queue,
    offers: &[Offer<'_>],
    held: Held,
    claimed: &mut Vec<(i64, Claimed)>,
) -> Result<(), Error> {
    let (mut last_free, mut lapsed, mut since) = (None, Vec::new(), HashMap::new());
    for offer in offers.iter().filter(|offer| offer.queue.number == queue.number) {
        match offer.what {
            What::Free => last_free = Some(offer.since),
            What::Turn { place, .. } => {
                lapsed.push(place);
                since.insert(place, offer.since);
            }
            _ => lapsed.push(offer.since),
        }
    }
    let bind = |lease: Statement<'static>, place: &i64| lease.bind(held.token).bind(held.until).bind(*place);
    let mut rows = each(connection, names, &lease_lapsed_template(), &lapsed, bind).await?;
    if let Some(last) = last_free {
        let query = names.sql(&lease_free_template()).query().bind(held.token).bind(held.until);
        let free = query.bind(queue.number).bind(last).fetch_all(&mut *connection).await;
        rows.extend(free.map_err(store_error)?);
    }
    for row in rows {
        let row = Found::read(&row, &queue.name).map_err(store_error)?;
        let (place, one) = row.leased(&queue.name, LeaseToken::from_uuid(held.token));
        claimed.push((since.get(&place).copied().unwrap_or(place), one));
    }
    Ok(())
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
        .filter_map(|offer| match &offer.what {
            What::Lane { key, lapses } => Some((offer.queue.number, key.as_str(), *lapses)),
            _ => None,
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
        let row = Found::read(&row, &queue.name).map_err(store_error)?;
        if row.ripe {
            ripe.push(place);
        }
        let lease = Lease::new(queue.name.clone(), row.id, LeaseToken::from_uuid(held.token)).in_turn(turn);
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

/// A row of `ready`, as every statement here answers it.
pub(super) struct Found {
    place: i64,
    id: MessageId,
    ripe: bool,
    message: Message,
    deliveries: u32,
    attempts: u32,
    staged_at: SystemTime,
    due_at: SystemTime,
}

impl Found {
    pub(super) fn read(row: &SqliteRow, queue: &QueueName) -> Result<Self, sqlx::Error> {
        Ok(Self {
            place: row.try_get_unchecked(0)?,
            ripe: row.try_get_unchecked(2)?,
            deliveries: row::count(row, 3)?,
            attempts: row::count(row, 4)?,
            staged_at: row::time(row, 5)?,
            due_at: row::time(row, 6)?,
            id: MessageId::from_uuid(row.try_get_unchecked(7)?),
            message: row::message(row, 7, queue)?,
        })
    }

    /// The message under a lease of its own, with its place.
    pub(super) fn leased(self, queue: &QueueName, token: LeaseToken) -> (i64, Claimed) {
        let mut lease = Lease::new(queue.clone(), self.id, token);
        // A timer's name ends with it, which takes the careful way.
        if self.message.timer().is_none() {
            lease = lease.at_place(self.place);
        }
        (self.place, self.claimed(lease, 0))
    }

    fn claimed(self, lease: Lease, uncounted: u32) -> Claimed {
        Claimed {
            message: self.message,
            lease,
            deliveries: self.deliveries.saturating_add(uncounted),
            attempts: self.attempts,
            staged_at: self.staged_at,
            due_at: self.due_at,
        }
    }
}

/// What has come due, oldest first.
pub(super) const COME: &str = "select id from {later} indexed by {later_due} where queue = ?1 and due_at <= ?2 order by due_at, id limit ?3";

pub(super) fn promote_template() -> String {
    format!(
        "insert into {{ready}} (id, due_at, ripe, fair, {BODY}) \
         select ?2 + j.turn, due_at, 1, ?3, {BODY} \
         from (select value as place, key as turn from json_each(?1)) j cross join {{later}} w on w.id = j.place"
    )
}

/// What has come due takes its place in the line, up to so many messages.
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
        .bind(queue.policy.fair_by_tenant)
        .execute(&mut *connection)
        .await
        .map_err(store_error)?;
    each_place(connection, names, "delete from {later} where id = ?", &come).await?;
    if queue.is_ordered() {
        lanes::open(connection, names, first..first + limit(rows.len())).await?;
    }
    Ok(())
}
