//! Claiming from a queue whose tenants take turns.
//!
//! A claim is two statements. A **survey** finds the tenants that have messages waiting, and a **take** leases the share of each
//! tenant from its lowest positions on, `limit` rows in all; `turns.rs` decides the shares. When a tenant has fewer messages than
//! its share, another take gives the rest to the others.
//!
//! The cost of a claim must depend on its limit and on the number of tenants that wait, and not on the length of their backlogs,
//! nor on the dead entries at the start of them while a session holds a snapshot. So:
//!
//! - Each tenant is read from a low-water mark of its own, and tenants without waiting messages are not read at all.
//! - The new rows above the queue's low-water mark show which tenants have messages waiting; each row is read once, late commits
//!   included (`horizon.rs`). One claim reads a *window* of them. When there are more, the window says nothing about the rows
//!   behind it: then one probe each reads the known tenants without waiting messages, and unknown tenants are searched in the
//!   *gaps* between the known ones, by one probe that finds nothing and one for each tenant found. The rows of known tenants are
//!   stepped over, with their dead entries.
//! - Below the low-water marks lie expired and released leases, and rows that another claimer had locked. Sweeps read each known
//!   tenant from its oldest live row, as often as the horizon says. A full sweep reads everything, when this memory is new and
//!   once a minute.
//! - A tenant without rows is remembered for what it left behind: dead entries, which a search of the gaps would have to walk. Only
//!   the last thousand are remembered, because each costs a probe.
//!
//! A low-water mark may rise above rows that an open transaction has yet to commit: a row that becomes visible later is among the
//! new rows that are read then, and lowers the mark.
//!
//! All of this is hints, and is discarded whenever a statement fails. `migrations/0001_initial/05_tenants.sql` has the survey.

use super::{
    PostgresNames,
    claim::{ClaimSpec, Sweeps, limit, read, snapshot, take},
    connections::Connections,
    error::store_error,
    horizon::{Horizon, LookBack, LookBackResult, Sweep},
    names::Sql,
    queues::Queue,
};
use crate::turns::{COME_DUE, Turns};
use postrider_core::{ClaimedMessage, Error, TenantId, TenantWeights};
use sqlx::{Row, postgres::PgRow};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

/// The number of new rows that one survey reads, in addition to two for each message of the limit.
const WINDOW: usize = 1_000;
/// Probing for tenants behind the window may take at most one part in this many of the time, unless it is cheap.
const PROBE_TIME_DIVISOR: u32 = 20;
const CHEAP: Duration = Duration::from_millis(100);

/// The number of tenants without rows that are remembered.
const MAX_DRAINED: usize = 1_000;

/// The statements, rendered once per store.
#[derive(Debug)]
pub(super) struct FairSql {
    survey: Sql,
    take: Sql,
}

const SURVEY: &str = "select s.snapshot, s.next_age, s.last_position, s.scanned_to, s.window_full, s.tenant, s.live, s.free, s.probed, \
      case when s.snapshot is not null then pg_postmaster_start_time() end \
    from {survey_tenants}($1::smallint, $2::integer, $3::bigint, $4::text[], $5::bigint[], $6::integer, $7::text[], $8::bigint[], \
      $9::boolean, $10::boolean) s";

/// The first free rows of each tenant. The row comparison and the order leave one index that fits.
const TENANT_ROWS: &str = "select s.ctid from unnest($4::text[], $5::bigint[], $6::bigint[]) t(tenant, start, share), lateral ( \
      select r.ctid from {ready} r where r.queue = $3::smallint and r.fair \
        and ((coalesce(r.tenant, '') collate \"C\"), r.id) > (t.tenant, t.start) and (coalesce(r.tenant, '') collate \"C\") <= t.tenant \
        and r.lease_until <= (select clock_timestamp()) \
      order by (coalesce(r.tenant, '') collate \"C\"), r.id limit t.share for update skip locked) s";

impl FairSql {
    pub(super) fn new(names: &PostgresNames) -> Self {
        Self { survey: names.sql(&sql!(SURVEY)), take: names.sql(&take(&sql!(TENANT_ROWS))) }
    }

    /// The statements, for tests that read their plans.
    pub(super) fn texts(&self) -> [(&'static str, &str); 2] {
        [("survey", self.survey.as_str()), ("take turns", self.take.as_str())]
    }
}

/// A claimer of one queue whose tenants take turns.
#[derive(Debug)]
pub(super) struct FairClaimer {
    sql: Arc<FairSql>,
    sweeps: Sweeps,
    /// Claims of one process run one at a time: the shares depend on the claims before.
    memory: tokio::sync::Mutex<FairnessMemory>,
}

#[derive(Debug)]
struct FairnessMemory {
    /// How far new rows were read.
    horizon: Horizon,
    /// Every tenant known to have a row, and those that had one lately, sorted by the bytes of their names.
    tenants: BTreeMap<String, TenantCursor>,
    turns: Turns,
    /// There were more new rows than the last window held.
    is_behind: bool,
    next_probe: Instant,
}

/// How far the rows of one tenant were read.
#[derive(Debug, Clone, Copy)]
struct TenantCursor {
    /// No message at or below waits, except those that the sweeps find.
    low_water: i64,
    /// No row lives at or below, as far as it was seen.
    floor: i64,
    /// A message waits above the low-water mark.
    has_waiting: bool,
    /// The time since which the tenant has had no row.
    drained_at: Option<Instant>,
}

impl FairnessMemory {
    fn new(now: Instant) -> Self {
        Self {
            horizon: Horizon::new(1, now),
            tenants: BTreeMap::new(),
            turns: Turns::default(),
            is_behind: false,
            next_probe: now,
        }
    }

    /// Plans the next survey.
    fn plan(&mut self, sweeps: Sweeps, found_nothing: bool, now: Instant) -> SurveyPlan {
        let tick = sweeps == Sweeps::All && (found_nothing || self.horizon.is_due(now));
        let look = tick.then(|| self.horizon.plan_look_back(found_nothing, now));
        let sweep = look.as_ref().map_or(Sweep::Late, |look| look.sweep);
        let start = look.as_ref().map_or(self.horizon.low_water_marks()[0], |look| look.starts[0]);
        let behind = self.is_behind && now >= self.next_probe;
        let known = match sweep {
            Sweep::Full => self.starts(|_| Some(0)),
            Sweep::Expired => self.starts(|cursor| Some(cursor.floor)),
            // The others are known to have messages waiting.
            Sweep::Late if behind => self.starts(|cursor| (!cursor.has_waiting).then_some(cursor.low_water)),
            Sweep::Late => Vec::new(),
        };
        SurveyPlan { look, start, known, sweep, gaps: sweep == Sweep::Full || behind }
    }

    fn starts(&self, start: impl Fn(&TenantCursor) -> Option<i64>) -> Vec<(String, Option<i64>)> {
        self.tenants.iter().map(|(tenant, cursor)| (tenant.clone(), start(cursor))).collect()
    }

    /// A tenant has a row at `live`, and a free one at `free`.
    fn row_seen(&mut self, tenant: String, live: i64, free: Option<i64>) {
        let fresh =
            TenantCursor { low_water: live - 1, floor: live - 1, has_waiting: false, drained_at: None };
        let cursor = self.tenants.entry(tenant).or_insert(fresh);
        cursor.floor = if cursor.drained_at.take().is_some() { live - 1 } else { cursor.floor.min(live - 1) };
        if let Some(free) = free {
            // The rows between belong to other tenants, unless there are windows that were not read yet.
            cursor.low_water =
                if cursor.has_waiting || self.is_behind { cursor.low_water.min(free - 1) } else { free - 1 };
            cursor.has_waiting = true;
        }
    }

    /// A known tenant was probed, from its low-water mark or from lower down.
    fn probed(
        &mut self,
        tenant: &str,
        live: Option<i64>,
        free: Option<i64>,
        sweep: Sweep,
        last_position: i64,
    ) {
        let Some(cursor) = self.tenants.get_mut(tenant) else { return };
        // No row lives before `live`; without one, none up to the last position that was drawn before.
        let nothing_before = live.map_or(last_position, |live| live - 1);
        cursor.low_water = cursor.low_water.max(nothing_before);
        if sweep != Sweep::Late {
            cursor.floor = nothing_before;
            cursor.drained_at =
                if live.is_none() { cursor.drained_at.or(Some(Instant::now())) } else { None };
        }
        if let Some(free) = free {
            cursor.low_water = if sweep == Sweep::Late { free - 1 } else { cursor.low_water.min(free - 1) };
        }
        cursor.has_waiting = free.is_some();
    }

    /// Forgets the tenants that have been without a row for the longest time.
    fn forget(&mut self) {
        let mut drained_at: Vec<Instant> =
            self.tenants.values().filter_map(|cursor| cursor.drained_at).collect();
        if drained_at.len() > MAX_DRAINED {
            let (_, newest, _) =
                drained_at.select_nth_unstable_by_key(MAX_DRAINED / 2, |since| std::cmp::Reverse(*since));
            let newest = *newest;
            self.tenants.retain(|_, cursor| cursor.drained_at.is_none_or(|since| since > newest));
        }
    }

    /// Applies the result of a survey. Returns how far it read, and the last position drawn.
    fn apply_survey(
        &mut self,
        header: &PgRow,
        rows: &[PgRow],
        plan: &SurveyPlan,
    ) -> Result<(i64, i64), sqlx::Error> {
        let (scanned_to, last_position) = (header.try_get(3)?, header.try_get(2)?);
        self.is_behind = header.try_get(4)?;
        let mut seen = Vec::new();
        for row in rows {
            let (tenant, live, free): (&str, _, _) = (row.try_get(5)?, row.try_get(6)?, row.try_get(7)?);
            match (row.try_get(8)?, live) {
                (true, live) => self.probed(tenant, live, free, plan.sweep, last_position),
                (false, Some(live)) => seen.push((tenant, live, free)),
                (false, None) => {}
            }
        }
        // A late commit may lie below the position from which its tenant was probed, so it is applied last.
        for (tenant, live, free) in seen {
            self.row_seen(tenant.to_owned(), live, free);
        }
        self.forget();
        Ok((scanned_to, last_position))
    }

    /// The tenants that have messages waiting.
    fn waiting(&self) -> Vec<String> {
        let waiting = self.tenants.iter().filter(|(_, cursor)| cursor.has_waiting);
        waiting.map(|(tenant, _)| tenant.clone()).collect()
    }
}

/// The plan of one survey.
#[derive(Debug)]
struct SurveyPlan {
    look: Option<LookBack>,
    start: i64,
    /// Known tenants, and the position from which each is probed, `None` to skip it.
    known: Vec<(String, Option<i64>)>,
    sweep: Sweep,
    gaps: bool,
}

impl FairClaimer {
    pub(super) fn new(sql: Arc<FairSql>, sweeps: Sweeps) -> Self {
        Self { sql, sweeps, memory: tokio::sync::Mutex::new(FairnessMemory::new(Instant::now())) }
    }

    pub(super) async fn claim(
        &self,
        connections: &Connections,
        queue: &Arc<Queue>,
        spec: ClaimSpec,
        weights: &TenantWeights,
    ) -> Result<Vec<(i64, ClaimedMessage)>, Error> {
        let mut memory = self.memory.lock().await;
        let claimed = self.claim_turns(&mut memory, connections, queue, spec, weights).await;
        if claimed.is_err() {
            *memory = FairnessMemory::new(Instant::now());
        }
        claimed
    }

    /// The low-water marks of the queue and of each tenant, for tests that read plans.
    pub(super) async fn low_water_marks(&self) -> (i64, Vec<(String, i64, bool)>) {
        let memory = self.memory.lock().await;
        let tenants = memory
            .tenants
            .iter()
            .map(|(tenant, cursor)| (tenant.clone(), cursor.low_water, cursor.has_waiting));
        (memory.horizon.low_water_marks()[0], tenants.collect())
    }

    async fn claim_turns(
        &self,
        memory: &mut FairnessMemory,
        connections: &Connections,
        queue: &Arc<Queue>,
        spec: ClaimSpec,
        weights: &TenantWeights,
    ) -> Result<Vec<(i64, ClaimedMessage)>, Error> {
        let mut found_nothing = false;
        let mut seen_to = None;
        loop {
            let plan = memory.plan(self.sweeps, found_nothing, Instant::now());
            let probed_gaps = plan.gaps;
            let mut scanned_to = self.survey(memory, connections, queue, spec, plan).await?;
            if memory.is_behind && !probed_gaps && Instant::now() >= memory.next_probe {
                // Tenants that arrived with the rest of the new rows take part in this claim, too.
                let plan = memory.plan(self.sweeps, false, Instant::now());
                scanned_to = self.survey(memory, connections, queue, spec, plan).await?;
            }
            let claimed = self.take(memory, connections, queue, spec, weights).await?;
            // Nothing found: look back once, and read all new rows.
            let is_over = found_nothing && (!memory.is_behind || seen_to >= Some(scanned_to));
            if !claimed.is_empty() || is_over {
                return Ok(claimed);
            }
            (found_nothing, seen_to) = (true, found_nothing.then_some(scanned_to));
        }
    }

    /// Finds the tenants that have messages waiting. Returns how far new rows were read.
    async fn survey(
        &self,
        memory: &mut FairnessMemory,
        connections: &Connections,
        queue: &Queue,
        spec: ClaimSpec,
        plan: SurveyPlan,
    ) -> Result<i64, Error> {
        let began = Instant::now();
        let (xids, lows) =
            plan.look.as_ref().map_or((&[][..], &[][..]), |look| (&look.xids[..], &look.lows[..]));
        let (known, starts): (Vec<&str>, Vec<Option<i64>>) =
            plan.known.iter().map(|(tenant, start)| (tenant.as_str(), *start)).unzip();
        let query = self
            .sql
            .survey
            .query()
            .bind(queue.number)
            .bind(count(spec.limit.max(COME_DUE)))
            .bind(plan.start)
            .bind(xids)
            .bind(lows)
            .bind(count(WINDOW + 2 * spec.limit))
            .bind(known)
            .bind(starts)
            .bind(plan.sweep != Sweep::Late)
            .bind(plan.gaps);
        let rows = connections.fetch_all(query).await?;
        let Some((header, rows)) = rows.split_first() else { return Ok(plan.start) };
        let running = snapshot(header, 0, 1, 9)?;
        if memory.horizon.is_of_another_server(&running) {
            *memory = FairnessMemory::new(Instant::now());
        }
        let (scanned_to, last_position) = memory.apply_survey(header, rows, &plan).map_err(store_error)?;
        let took = began.elapsed();
        let now = Instant::now();
        if plan.gaps && plan.sweep == Sweep::Late {
            memory.next_probe = if took <= CHEAP { now } else { now + took * PROBE_TIME_DIVISOR };
        }
        match &plan.look {
            None => memory.horizon.advance(&[Some(scanned_to)]),
            Some(look) => {
                let (last, full) = (vec![Some(scanned_to)], memory.is_behind);
                let result =
                    LookBackResult { snapshot: running, last_position, low: i64::MAX, last, full, took };
                memory.horizon.record_look_back(look, result, spec.lease_for, now);
                // Tenants have floors of their own.
                memory.horizon.raise_floors(&[None]);
            }
        }
        Ok(scanned_to)
    }

    /// Leases each tenant's share, until the limit is reached or no tenant has messages left.
    async fn take(
        &self,
        memory: &mut FairnessMemory,
        connections: &Connections,
        queue: &Arc<Queue>,
        spec: ClaimSpec,
        weights: &TenantWeights,
    ) -> Result<Vec<(i64, ClaimedMessage)>, Error> {
        let waiting = memory.waiting();
        let FairnessMemory { tenants, turns, .. } = memory;
        let mut round = turns.round(weights, waiting, spec.limit);
        loop {
            let shares = round.shares();
            if shares.is_empty() {
                return Ok(round.finish());
            }
            let starts: Vec<i64> = shares
                .iter()
                .map(|(tenant, _)| tenants.get(tenant).map_or(0, |cursor| cursor.low_water))
                .collect();
            let query = self
                .sql
                .take
                .query()
                .bind(spec.token.as_uuid())
                .bind(spec.lease_for.as_secs_f64())
                .bind(queue.number)
                .bind(shares.iter().map(|(tenant, _)| tenant.as_str()).collect::<Vec<_>>())
                .bind(starts)
                .bind(shares.iter().map(|(_, share)| limit(*share)).collect::<Vec<_>>());
            let mut found: HashMap<String, Vec<(i64, ClaimedMessage)>> = HashMap::new();
            let rows = match connections.fetch_all(query).await {
                Ok(rows) => rows,
                Err(error) => {
                    let found = round.finish();
                    *memory = FairnessMemory::new(Instant::now());
                    // Messages that an earlier statement has leased are delivered; the next claim meets the error again.
                    return if found.is_empty() { Err(error) } else { Ok(found) };
                }
            };
            for row in rows {
                let (_, position, one) =
                    read(&row, std::slice::from_ref(queue), spec).map_err(store_error)?;
                let tenant = one.message.tenant().map_or("", TenantId::as_str).to_owned();
                found.entry(tenant).or_default().push((position, one));
            }
            for (tenant, share) in shares {
                let mut own = found.remove(&tenant).unwrap_or_default();
                own.sort_unstable_by_key(|(position, _)| *position);
                if let Some(cursor) = tenants.get_mut(&tenant) {
                    cursor.low_water =
                        own.last().map_or(cursor.low_water, |(position, _)| cursor.low_water.max(*position));
                    cursor.has_waiting = own.len() == share;
                }
                round.found(&tenant, share, own);
            }
        }
    }
}

fn count(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(memory: &FairnessMemory) -> (i64, i64, bool) {
        let cursor = memory.tenants["a"];
        (cursor.low_water, cursor.floor, cursor.has_waiting)
    }

    fn memory() -> FairnessMemory {
        let mut memory = FairnessMemory::new(Instant::now());
        memory.row_seen("a".to_owned(), 10, Some(12));
        assert_eq!(cursor(&memory), (11, 9, true));
        memory
    }

    #[test]
    fn late_commit_lowers_low_water_and_floor() {
        let mut memory = memory();
        memory.probed("a", Some(50), None, Sweep::Expired, 100);
        assert_eq!(cursor(&memory), (49, 49, false));
        memory.row_seen("a".to_owned(), 30, Some(30));
        assert_eq!(cursor(&memory), (29, 29, true));
    }

    #[test]
    fn probe_without_rows_raises_low_water_to_last_position() {
        let mut memory = memory();
        memory.probed("a", None, None, Sweep::Late, 100);
        assert_eq!(cursor(&memory), (100, 9, false), "the floor is for sweeps to raise");
        memory.probed("a", None, None, Sweep::Expired, 100);
        assert_eq!(cursor(&memory), (100, 100, false));
        memory.row_seen("a".to_owned(), 120, Some(120));
        assert_eq!(cursor(&memory), (119, 119, true));
    }

    #[test]
    fn low_water_does_not_rise_behind_unread_window() {
        let mut memory = memory();
        memory.is_behind = true;
        memory.row_seen("a".to_owned(), 80, Some(80));
        assert_eq!(cursor(&memory), (11, 9, true));
    }

    #[test]
    fn forget_removes_only_drained_tenants() {
        let mut memory = memory();
        for number in 0..3 * MAX_DRAINED {
            let tenant = format!("tenant-{number}");
            memory.row_seen(tenant.clone(), 5, None);
            memory.probed(&tenant, None, None, Sweep::Full, 100);
            memory.forget();
        }
        assert!(memory.tenants.len() <= MAX_DRAINED + 1, "{}", memory.tenants.len());
        assert!(memory.tenants.contains_key("a"));
        assert!(
            memory.tenants.contains_key(&format!("tenant-{}", 3 * MAX_DRAINED - 1)),
            "the newest is remembered"
        );
    }
}
