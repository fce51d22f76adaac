//! Claiming from a queue that is ordered by key: the key is leased, not the message.
//!
//! A `lane` is one row per living key. Claimers make lanes from the new rows that they discover above their mark, take
//! others from a ring in which turns are fair, and fetch several consecutive messages of each key. Producers never touch a
//! lane. A failed head stays where it is and its lane does the waiting, so nothing can overtake it. The statements
//! and their reasons are in `migrations/0003_lanes.sql`; here is what a process remembers between calls, all of it hints.
//!
//! The ring mark hides lanes that were passed: those that somebody holds, and dead entries. Lanes whose place in the ring
//! was drawn earlier but committed later appear below it, so each tick reads from the mark of a second ago; lapsed leases
//! lie anywhere, so a sweep reads from zero.

use super::{
    Names,
    claim::{Want, count, snapshot},
    connections::Connections,
    error::store_error,
    horizon::{Horizon, Look, Seen, Sweep, TICK},
    names::Sql,
    queues::Queue,
    row,
};
use postrider_core::{Claimed, Error, Lease, OrderingKey, lease::Turn};
use sqlx::{Row, postgres::PgRow};
use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use time::OffsetDateTime;

/// A lane whose place was drawn longer ago than this is found by the sweep.
const LATE_LANES: Duration = Duration::from_secs(1);
const WINDOW: i32 = 1_000;
/// A hot key may have so many messages in front of the others; a wider window passes them in fewer calls.
const WIDEST_WINDOW: i32 = 50_000;
const FEWEST_LANES: usize = 32;

const HEADER_COLUMNS: usize = 8;
/// Where the columns of the message begin: behind the header's and the place.
const FIRST: usize = HEADER_COLUMNS + 1;
const STAGED_AT: usize = FIRST + row::COLUMN_COUNT;

pub(super) fn claim_template() -> String {
    format!(
        "select m.header, m.snapshot, m.next_age, m.last_place, m.scanned_to, m.window_full, m.ring_to, m.lane_keys, m.id, {}, \
         m.staged_at, m.due_at, m.attempts, m.deliveries \
         from {{claim_lanes}}($1, $2, $3, $4, $5, $6, $7::text[], $8::bigint[], $9, $10, $11) m",
        row::COLUMNS
    )
}

/// A claimer of one ordered queue.
#[derive(Debug)]
pub(super) struct LaneClaimer {
    sql: Sql,
    memory: Mutex<Memory>,
    /// Claims of one process take turns: discovery by two of them would read the same rows.
    claiming: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Memory {
    horizon: Horizon,
    ring: i64,
    rings: VecDeque<(Instant, i64)>,
    next_ring_sweep: Instant,
    window: i32,
    /// Messages per lane of the last claim: how many lanes fill a limit.
    per_lane: usize,
}

impl Memory {
    fn new(now: Instant) -> Self {
        Self {
            horizon: Horizon::new(1, now),
            ring: 0,
            rings: VecDeque::new(),
            next_ring_sweep: now,
            window: WINDOW,
            per_lane: 1,
        }
    }

    /// Where to read the ring from: zero when it is time for a sweep, now and then the mark of a second ago.
    fn ring_from(&mut self, look_back: bool, sweep: bool, now: Instant) -> i64 {
        if sweep || now >= self.next_ring_sweep {
            return 0;
        }
        while self.rings.len() > 1 && self.rings[1].0 + LATE_LANES <= now {
            self.rings.pop_front();
        }
        match self.rings.front() {
            Some((_, ring)) if look_back => *ring,
            _ => self.ring,
        }
    }
}

/// How one call is made.
struct Call {
    look: Option<Look>,
    start: i64,
    ring: i64,
    window: i32,
    lanes: usize,
    floor: i64,
}

/// What one call found besides messages.
struct Found {
    lanes: Vec<String>,
    window_full: bool,
}

impl LaneClaimer {
    pub(super) fn new(names: &Names) -> Self {
        Self {
            sql: names.sql(&claim_template()),
            memory: Mutex::new(Memory::new(Instant::now())),
            claiming: tokio::sync::Mutex::default(),
        }
    }

    /// No open transaction can still write at or below this place.
    pub(super) fn settled_floor(&self) -> i64 {
        self.memory().horizon.settled_floor()
    }

    /// Claims turns. Answers also with the keys that it leased and that turned out to have no messages: they must be freed.
    pub(super) async fn claim(
        &self,
        connections: &Connections,
        queue: &Queue,
        want: Want,
    ) -> Result<(Vec<(i64, Claimed)>, Vec<Lease>), Error> {
        let claimed = self.claim_turns(connections, queue, want).await;
        if claimed.is_err() {
            *self.memory() = Memory::new(Instant::now());
        }
        claimed
    }

    async fn claim_turns(
        &self,
        connections: &Connections,
        queue: &Queue,
        want: Want,
    ) -> Result<(Vec<(i64, Claimed)>, Vec<Lease>), Error> {
        let _turn = self.claiming.lock().await;
        let mut claimed = Vec::new();
        let mut empty = Vec::new();
        let mut looked_back = false;
        // The first call reads what is new. With empty hands: look back once, and pass a full window of a busy key.
        loop {
            let began = Instant::now();
            let call = self.plan(want.limit, looked_back, began);
            looked_back |= call.look.as_ref().is_some_and(|look| look.sweep != Sweep::Late);
            let rows = self.call(connections, queue, want, &call).await?;
            let Some((header, rows)) = rows.split_first() else { break };
            let found = self.learn(header, rows.len(), &call, want.lease_for, began)?;
            collect(rows, queue, want, &mut claimed)?;
            let handed: HashSet<&str> =
                claimed.iter().filter_map(|(_, one)| Some(one.lease.turn()?.key.as_str())).collect();
            empty = found
                .lanes
                .iter()
                .filter(|key| !handed.contains(key.as_str()))
                .map(|key| idle(queue, want, key))
                .collect();
            if !claimed.is_empty() || !empty.is_empty() || (looked_back && !found.window_full) {
                break;
            }
            looked_back = true;
        }
        claimed.sort_unstable_by_key(|(place, _)| *place);
        Ok((claimed, empty))
    }

    fn plan(&self, most: usize, empty_handed: bool, now: Instant) -> Call {
        let mut memory = self.memory();
        let tick = empty_handed || memory.horizon.is_due(now);
        let look = tick.then(|| memory.horizon.look(empty_handed, now));
        let sweep = look.as_ref().is_some_and(|look| look.sweep != Sweep::Late);
        let start = look.as_ref().map_or(memory.horizon.marks()[0], |look| look.starts[0]);
        let ring = memory.ring_from(tick, sweep, now);
        let lanes = (most / memory.per_lane.max(1)).clamp(FEWEST_LANES.min(most), most);
        Call { look, start, ring, window: memory.window, lanes, floor: memory.horizon.settled_floor() }
    }

    async fn call(
        &self,
        connections: &Connections,
        queue: &Queue,
        want: Want,
        call: &Call,
    ) -> Result<Vec<PgRow>, Error> {
        let (xids, lows) =
            call.look.as_ref().map_or((&[][..], &[][..]), |look| (&look.xids[..], &look.lows[..]));
        let query = self
            .sql
            .query()
            .bind(queue.number)
            .bind(want.token.as_uuid())
            .bind(want.lease_for.as_secs_f64())
            .bind(i32::try_from(want.limit).unwrap_or(i32::MAX))
            .bind(i32::try_from(call.lanes).unwrap_or(i32::MAX))
            .bind(call.start)
            .bind(xids)
            .bind(lows)
            .bind(call.window)
            .bind(call.floor)
            .bind(call.ring);
        connections.fetch_all(query).await
    }

    fn learn(
        &self,
        header: &PgRow,
        messages: usize,
        call: &Call,
        lease: Duration,
        began: Instant,
    ) -> Result<Found, Error> {
        let lanes: Vec<String> = header.try_get(7).map_err(store_error)?;
        let scanned_to: i64 = header.try_get(4).map_err(store_error)?;
        let window_full: bool = header.try_get(5).map_err(store_error)?;
        let ring_to: i64 = header.try_get(6).map_err(store_error)?;
        let now = Instant::now();
        let mut memory = self.memory();
        memory.window = match window_full {
            true if lanes.len() < call.lanes / 2 => (memory.window * 4).min(WIDEST_WINDOW),
            _ => WINDOW,
        };
        if !lanes.is_empty() {
            memory.per_lane = (messages / lanes.len()).max(1);
        }
        // A ring that gave fewer lanes than asked was read to its end.
        let ring_end = lanes.len() < call.lanes;
        memory.ring = if ring_end { memory.ring.max(ring_to) } else { ring_to.max(call.ring) };
        if call.look.is_some() {
            let ring = memory.ring;
            memory.rings.push_back((now, ring));
        }
        if call.ring == 0 {
            memory.next_ring_sweep =
                now + (lease / 2).clamp(TICK, Duration::from_secs(5)).max(began.elapsed() * 20);
        }
        match &call.look {
            None => memory.horizon.passed(&[Some(scanned_to)]),
            Some(look) => {
                let seen = Seen {
                    snapshot: snapshot(header, 1, 2)?,
                    last_place: header.try_get(3).map_err(store_error)?,
                    low: i64::MAX,
                    last: vec![Some(scanned_to)],
                    full: window_full,
                    took: began.elapsed(),
                };
                memory.horizon.looked(look, seen, lease, now);
                // Lapsed leases are on lanes, not on messages: a lapse sweep need not read old rows again.
                memory.horizon.raise_floors(&[None]);
            }
        }
        Ok(Found { lanes, window_full })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease on a key that has no messages.
fn idle(queue: &Queue, want: Want, key: &str) -> Lease {
    let id = postrider_core::MessageId::from_uuid(uuid::Uuid::nil());
    Lease::new(queue.name.clone(), id, want.token).in_turn(Turn {
        key: OrderingKey::stored(key),
        place: 0,
        last: true,
    })
}

/// Adds the turns to what was claimed. The rows of a key stand together, in order.
fn collect(
    rows: &[PgRow],
    queue: &Queue,
    want: Want,
    claimed: &mut Vec<(i64, Claimed)>,
) -> Result<(), Error> {
    let keys: Result<Vec<&str>, _> = rows.iter().map(|row| row.try_get(FIRST + 4)).collect();
    let keys = keys.map_err(store_error)?;
    for (index, row) in rows.iter().enumerate() {
        let last = keys.get(index + 1) != Some(&keys[index]);
        claimed.push(read(row, keys[index], last, queue, want).map_err(store_error)?);
    }
    Ok(())
}

fn read(
    row: &PgRow,
    key: &str,
    last: bool,
    queue: &Queue,
    want: Want,
) -> Result<(i64, Claimed), sqlx::Error> {
    let place: i64 = row.try_get(HEADER_COLUMNS)?;
    let message = row::message(row, FIRST, &queue.name)?;
    let id = message.id().ok_or(sqlx::Error::RowNotFound)?;
    let turn = Turn { key: OrderingKey::stored(key), place, last };
    let lease = Lease::new(queue.name.clone(), id, want.token).in_turn(turn);
    let claimed = Claimed {
        message,
        lease,
        staged_at: row.try_get::<OffsetDateTime, _>(STAGED_AT)?.into(),
        due_at: row.try_get::<OffsetDateTime, _>(STAGED_AT + 1)?.into(),
        attempts: count(row.try_get(STAGED_AT + 2)?),
        deliveries: count(row.try_get(STAGED_AT + 3)?),
    };
    Ok((place, claimed))
}
