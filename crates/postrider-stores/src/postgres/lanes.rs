//! Claiming from a queue that is ordered by key: the key is leased, not the message.
//!
//! A `lane` is one row per key that has messages. Claimers insert lanes for the new rows that they discover above their low-water
//! mark, take others from a ring in which turns are fair, and fetch several consecutive messages of each key. Producers never
//! touch a lane. A failed head stays where it is and its lane waits, so no message can overtake it. The statements and their
//! reasons are in `migrations/0001_initial/04_lanes.sql`; this module holds the memory of a process between calls, all of it
//! hints.
//!
//! The ring position hides lanes that were passed: leased lanes, and dead entries. Lanes whose ring position was drawn earlier but
//! committed later appear below it, so each tick reads from the ring position of a second ago; expired leases lie anywhere, so a
//! sweep reads from zero.

use super::{
    PostgresNames,
    claim::{ClaimSpec, count, snapshot},
    connections::Connections,
    error::store_error,
    horizon::{Horizon, LookBack, LookBackResult, Sweep, TICK},
    names::Sql,
    queues::Queue,
    row,
};
use postrider_core::{ClaimedMessage, Error, Lease, OrderingKey, lease::Turn};
use sqlx::{Row, postgres::PgRow};
use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use time::OffsetDateTime;

/// A lane whose ring position was drawn longer ago than this is found by the sweep.
const LATE_LANES: Duration = Duration::from_secs(1);
const WINDOW: i32 = 1_000;
/// A hot key may have this many messages before those of other keys; a wider window passes them in fewer calls.
const MAX_WINDOW: i32 = 50_000;
const MIN_LANES: usize = 32;

const HEADER_COLUMNS: usize = 8;
/// The index of the first column of the message: after the header's columns and the position.
const FIRST: usize = HEADER_COLUMNS + 1;
const STAGED_AT: usize = FIRST + row::COLUMN_COUNT;
const SERVER_STARTED_AT: usize = STAGED_AT + 7;

const CLAIM: &str = "select m.header, m.snapshot, m.next_age, m.last_position, m.scanned_to, m.window_full, m.ring_to, m.lane_keys, \
      m.id, {columns}, m.staged_at, m.due_at, m.attempts, m.deliveries, m.isolated, m.first_failed_at, clock_timestamp(), case when m.header then pg_postmaster_start_time() end \
    from {claim_lanes}($1, $2, $3, $4, $5, $6, $7::text[], $8::bigint[], $9, $10, $11) m";

/// A claimer of one ordered queue.
#[derive(Debug)]
pub(super) struct LaneClaimer {
    sql: Sql,
    memory: Mutex<LaneMemory>,
    /// Leases on keys without messages that could not be released yet.
    unreleased: Mutex<Vec<Lease>>,
    /// Claims of one process run one at a time: two discoveries would read the same rows.
    claiming: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct LaneMemory {
    horizon: Horizon,
    ring: i64,
    rings: VecDeque<(Instant, i64)>,
    next_ring_sweep: Instant,
    window: i32,
    /// Messages per lane in the last claim, to estimate how many lanes fill a limit.
    per_lane: usize,
}

impl LaneMemory {
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

    /// Where to read the ring from: zero for a sweep, the ring position of a second ago for a look-back, else the current one.
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

/// The parameters of one call of `claim_lanes`.
struct LaneCall {
    look: Option<LookBack>,
    start: i64,
    ring: i64,
    window: i32,
    lanes: usize,
    floor: i64,
}

/// The header of one call: the lanes it leased, and whether its window was full.
struct LaneHeader {
    lanes: Vec<String>,
    window_full: bool,
}

impl LaneClaimer {
    pub(super) fn new(names: &PostgresNames) -> Self {
        Self {
            sql: names.sql(&sql!(CLAIM, columns = sql!(row::COLUMNS))),
            memory: Mutex::new(LaneMemory::new(Instant::now())),
            unreleased: Mutex::default(),
            claiming: tokio::sync::Mutex::default(),
        }
    }

    /// No open transaction can still write at or below this position.
    pub(super) fn settled_floor(&self) -> i64 {
        self.memory().horizon.settled_floor()
    }

    /// Claims turns. Returns also leases on keys that turned out to have no messages: the caller must release them.
    pub(super) async fn claim(
        &self,
        connections: &Connections,
        queue: &Queue,
        spec: ClaimSpec,
    ) -> Result<(Vec<(i64, ClaimedMessage)>, Vec<Lease>), Error> {
        let claimed = self.claim_turns(connections, queue, spec).await;
        match claimed {
            Ok((claimed, mut empty)) => {
                empty.append(&mut self.unreleased());
                Ok((claimed, empty))
            }
            Err(error) => {
                *self.memory() = LaneMemory::new(Instant::now());
                Err(error)
            }
        }
    }

    /// These leases on keys without messages could not be released: the next claim returns them again.
    pub(super) fn release_later(&self, empty: Vec<Lease>) {
        self.unreleased().extend(empty);
    }

    fn unreleased(&self) -> MutexGuard<'_, Vec<Lease>> {
        self.unreleased.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn claim_turns(
        &self,
        connections: &Connections,
        queue: &Queue,
        spec: ClaimSpec,
    ) -> Result<(Vec<(i64, ClaimedMessage)>, Vec<Lease>), Error> {
        let _turn = self.claiming.lock().await;
        let mut claimed = Vec::new();
        let mut empty = Vec::new();
        let mut looked_back = false;
        // The first call reads new rows. If it finds nothing: look back once, and pass a full window of a busy key.
        loop {
            let began = Instant::now();
            let call = self.plan(spec.limit, looked_back, began);
            looked_back |= call.look.as_ref().is_some_and(|look| look.sweep != Sweep::Late);
            let rows = self.call(connections, queue, spec, &call).await?;
            let Some((first, rows)) = rows.split_first() else { break };
            let header = self.record(first, rows.len(), &call, spec.lease_for, began)?;
            collect(rows, queue, spec, &mut claimed)?;
            let claimed_keys: HashSet<&str> =
                claimed.iter().filter_map(|(_, one)| Some(one.lease.turn()?.key.as_str())).collect();
            empty = header
                .lanes
                .iter()
                .filter(|key| !claimed_keys.contains(key.as_str()))
                .map(|key| empty_lane_lease(queue, spec, key))
                .collect();
            if !claimed.is_empty() || !empty.is_empty() || (looked_back && !header.window_full) {
                break;
            }
            looked_back = true;
        }
        claimed.sort_unstable_by_key(|(position, _)| *position);
        Ok((claimed, empty))
    }

    fn plan(&self, limit: usize, found_nothing: bool, now: Instant) -> LaneCall {
        let mut memory = self.memory();
        let tick = found_nothing || memory.horizon.is_due(now);
        let look = tick.then(|| memory.horizon.plan_look_back(found_nothing, now));
        let sweep = look.as_ref().is_some_and(|look| look.sweep != Sweep::Late);
        let start = look.as_ref().map_or(memory.horizon.low_water_marks()[0], |look| look.starts[0]);
        let ring = memory.ring_from(tick, sweep, now);
        let lanes = (limit / memory.per_lane.max(1)).clamp(MIN_LANES.min(limit), limit);
        LaneCall { look, start, ring, window: memory.window, lanes, floor: memory.horizon.settled_floor() }
    }

    async fn call(
        &self,
        connections: &Connections,
        queue: &Queue,
        spec: ClaimSpec,
        call: &LaneCall,
    ) -> Result<Vec<PgRow>, Error> {
        let (xids, lows) =
            call.look.as_ref().map_or((&[][..], &[][..]), |look| (&look.xids[..], &look.lows[..]));
        let query = self
            .sql
            .query()
            .bind(queue.number)
            .bind(spec.token.as_uuid())
            .bind(spec.lease_for.as_secs_f64())
            .bind(i32::try_from(spec.limit).unwrap_or(i32::MAX))
            .bind(i32::try_from(call.lanes).unwrap_or(i32::MAX))
            .bind(call.start)
            .bind(xids)
            .bind(lows)
            .bind(call.window)
            .bind(call.floor)
            .bind(call.ring);
        connections.fetch_all(query).await
    }

    fn record(
        &self,
        header: &PgRow,
        messages: usize,
        call: &LaneCall,
        lease: Duration,
        began: Instant,
    ) -> Result<LaneHeader, Error> {
        let lanes: Vec<String> = header.try_get(7).map_err(store_error)?;
        let scanned_to: i64 = header.try_get(4).map_err(store_error)?;
        let window_full: bool = header.try_get(5).map_err(store_error)?;
        let ring_to: i64 = header.try_get(6).map_err(store_error)?;
        let now = Instant::now();
        let snapshot = snapshot(header, 1, 2, SERVER_STARTED_AT)?;
        let mut memory = self.memory();
        if memory.horizon.is_of_another_server(&snapshot) {
            *memory = LaneMemory::new(now);
            return Ok(LaneHeader { lanes, window_full });
        }
        memory.window = match window_full {
            true if lanes.len() < call.lanes / 2 => (memory.window * 4).min(MAX_WINDOW),
            _ => WINDOW,
        };
        if !lanes.is_empty() {
            memory.per_lane = (messages / lanes.len()).max(1);
        }
        // A ring that returned fewer lanes than requested was read to its end.
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
            None => memory.horizon.advance(&[Some(scanned_to)]),
            Some(look) => {
                let result = LookBackResult {
                    snapshot,
                    last_position: header.try_get(3).map_err(store_error)?,
                    low: i64::MAX,
                    last: vec![Some(scanned_to)],
                    full: window_full,
                    took: began.elapsed(),
                };
                memory.horizon.record_look_back(look, result, lease, now);
                // Leases are on lanes, not on messages: an expiry sweep need not read old rows again.
                memory.horizon.raise_floors(&[None]);
            }
        }
        Ok(LaneHeader { lanes, window_full })
    }

    fn memory(&self) -> MutexGuard<'_, LaneMemory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lease on a key that has no messages.
fn empty_lane_lease(queue: &Queue, spec: ClaimSpec, key: &str) -> Lease {
    let id = postrider_core::MessageId::from_uuid(uuid::Uuid::nil());
    Lease::new(queue.name.clone(), id, spec.token).in_turn(Turn {
        key: OrderingKey::stored(key),
        position: 0,
        last: true,
    })
}

/// Adds the turns to `claimed`. The rows of a key are adjacent, in order.
fn collect(
    rows: &[PgRow],
    queue: &Queue,
    spec: ClaimSpec,
    claimed: &mut Vec<(i64, ClaimedMessage)>,
) -> Result<(), Error> {
    let keys: Result<Vec<&str>, _> = rows.iter().map(|row| row.try_get(FIRST + 4)).collect();
    let keys = keys.map_err(store_error)?;
    for (index, row) in rows.iter().enumerate() {
        let last = keys.get(index + 1) != Some(&keys[index]);
        claimed.push(read(row, keys[index], last, queue, spec).map_err(store_error)?);
    }
    Ok(())
}

fn read(
    row: &PgRow,
    key: &str,
    last: bool,
    queue: &Queue,
    spec: ClaimSpec,
) -> Result<(i64, ClaimedMessage), sqlx::Error> {
    let position: i64 = row.try_get(HEADER_COLUMNS)?;
    let message = row::message(row, FIRST, &queue.name)?;
    let id = message.id().ok_or(sqlx::Error::RowNotFound)?;
    let turn = Turn { key: OrderingKey::stored(key), position, last };
    let lease = Lease::new(queue.name.clone(), id, spec.token).in_turn(turn);
    let claimed = ClaimedMessage {
        message,
        lease,
        staged_at: row.try_get::<OffsetDateTime, _>(STAGED_AT)?.into(),
        due_at: row.try_get::<OffsetDateTime, _>(STAGED_AT + 1)?.into(),
        attempts: count(row.try_get(STAGED_AT + 2)?),
        deliveries: count(row.try_get(STAGED_AT + 3)?),
        isolated: count(row.try_get::<Option<i16>, _>(STAGED_AT + 4)?.unwrap_or(0).into()),
        first_failed_at: row.try_get::<Option<OffsetDateTime>, _>(STAGED_AT + 5)?.map(Into::into),
        claimed_at: row.try_get::<OffsetDateTime, _>(STAGED_AT + 6)?.into(),
    };
    Ok((position, claimed))
}
