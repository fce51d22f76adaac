//! Claiming from a queue whose tenants take turns: each tenant is a line of its own.
//!
//! A claim is two statements. A **survey** finds the tenants that have something waiting, and a **take** leases the share of
//! each from the beginning of its line, `limit` rows in all; `turns.rs` decides the shares. Where a line is shorter than its
//! share, another take gives the rest to the others.
//!
//! What a claim costs must depend on its limit and on the number of tenants that wait, and not on how long their lines are,
//! nor on the dead entries that lie at their beginnings while somebody holds a snapshot. So:
//!
//! - A line is read from a mark of its own, and tenants that have nothing waiting are not asked at all.
//! - Who has something waiting is learnt from the new rows above the queue's mark, each of which is read once, late commits
//!   included (`horizon.rs`). One claim reads a *window* of them. When there are more, the window says nothing about those
//!   behind it: then the known tenants of which nothing waits are asked by a probe each, and unknown ones are looked for in
//!   the *gaps* between the known, by one probe that finds nothing and one for each that is there. Known lines are stepped
//!   over, with their dead entries.
//! - Below the marks lie leases that lapsed or were released, and rows that somebody had locked. Sweeps look at each known
//!   tenant from its oldest living row, as often as the horizon says. A full sweep looks at everything, when this memory is
//!   new and once a minute.
//! - A tenant with no row left is remembered for what it left behind: dead entries, which a gap would have to walk over. Only
//!   the last thousand are, since asking each of them costs a probe.
//!
//! A mark may be put above rows that an open transaction has yet to commit: whatever becomes visible later is among the new
//! rows that are read then, and lowers it.
//!
//! All of this is hints, and is thrown away whenever a statement fails. `migrations/0010_tenants.sql` has the survey.

use super::{
    Names,
    claim::{RETURNED, Sweeps, TAKE, Want, limit, read, snapshot},
    connections::Connections,
    error::store_error,
    horizon::{Horizon, Look, Seen, Sweep},
    names::Sql,
    queues::Queue,
    row,
};
use crate::turns::{COME_DUE, Turns};
use postrider_core::{Claimed, Error, TenantId, TenantWeights};
use sqlx::{Row, postgres::PgRow};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

/// New rows that one survey reads, besides two for each message asked for.
const WINDOW: usize = 1_000;
/// Asking for tenants behind the window may take at most one part in so many of the time, unless it is cheap.
const DUTY: u32 = 20;
const CHEAP: Duration = Duration::from_millis(100);

/// Tenants with no row left that are remembered.
const MOST_DRAINED: usize = 1_000;

/// The statements, made once per store.
#[derive(Debug)]
pub(super) struct FairSql {
    survey: Sql,
    take: Sql,
}

const SURVEY: &str = "select s.snapshot, s.next_age, s.last_place, s.scanned_to, s.window_full, s.tenant, s.live, s.free, s.probed \
    from {survey_tenants}($1::smallint, $2::integer, $3::bigint, $4::text[], $5::bigint[], $6::integer, $7::text[], $8::bigint[], \
      $9::boolean, $10::boolean) s";

/// The beginnings of lines. The row comparison and the order leave one index that fits.
const LINES: &str = "select s.ctid from unnest($4::text[], $5::bigint[], $6::bigint[]) t(tenant, start, share), lateral ( \
      select r.ctid from {ready} r where r.queue = $3::smallint and r.fair \
        and ((coalesce(r.tenant, '') collate \"C\"), r.id) > (t.tenant, t.start) and (coalesce(r.tenant, '') collate \"C\") <= t.tenant \
        and r.lease_until <= (select clock_timestamp()) \
      order by (coalesce(r.tenant, '') collate \"C\"), r.id limit t.share for update skip locked) s";

impl FairSql {
    pub(super) fn new(names: &Names) -> Self {
        let take =
            TAKE.replace("FOUND", LINES).replace("RETURNED", RETURNED).replace("COLUMNS", row::COLUMNS);
        Self { survey: names.sql(SURVEY), take: names.sql(&take) }
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
    /// Claims of one process take turns: shares are decided by what was claimed before.
    memory: tokio::sync::Mutex<Memory>,
}

#[derive(Debug)]
struct Memory {
    /// How far new rows were read.
    horizon: Horizon,
    /// Every tenant that has a living row, as far as it is known, and those that had one lately, by the bytes of their names.
    lines: BTreeMap<String, Line>,
    turns: Turns,
    /// There was more that is new than the last window held.
    lags: bool,
    next_probe: Instant,
}

/// How far the line of one tenant was read.
#[derive(Debug, Clone, Copy)]
struct Line {
    /// Nothing at or below waits, but for what the sweeps are for.
    mark: i64,
    /// No row lives at or below, as far as it was seen.
    floor: i64,
    /// Something waits above the mark.
    waits: bool,
    /// Since when no row lives.
    drained: Option<Instant>,
}

impl Memory {
    fn new(now: Instant) -> Self {
        Self {
            horizon: Horizon::new(1, now),
            lines: BTreeMap::new(),
            turns: Turns::default(),
            lags: false,
            next_probe: now,
        }
    }

    /// How to look at the queue now.
    fn plan(&mut self, sweeps: Sweeps, empty_handed: bool, now: Instant) -> Plan {
        let tick = sweeps == Sweeps::All && (empty_handed || self.horizon.is_due(now));
        let look = tick.then(|| self.horizon.look(empty_handed, now));
        let sweep = look.as_ref().map_or(Sweep::Late, |look| look.sweep);
        let start = look.as_ref().map_or(self.horizon.marks()[0], |look| look.starts[0]);
        let behind = self.lags && now >= self.next_probe;
        let known = match sweep {
            Sweep::Full => self.starts(|_| Some(0)),
            Sweep::Lapsed => self.starts(|line| Some(line.floor)),
            // Of the others it is known that they wait.
            Sweep::Late if behind => self.starts(|line| (!line.waits).then_some(line.mark)),
            Sweep::Late => Vec::new(),
        };
        Plan { look, start, known, sweep, gaps: sweep == Sweep::Full || behind }
    }

    fn starts(&self, start: impl Fn(&Line) -> Option<i64>) -> Vec<(String, Option<i64>)> {
        self.lines.iter().map(|(tenant, line)| (tenant.clone(), start(line))).collect()
    }

    /// A tenant has a living row here, and one that is free there.
    fn came_upon(&mut self, tenant: String, live: i64, free: Option<i64>) {
        let fresh = Line { mark: live - 1, floor: live - 1, waits: false, drained: None };
        let line = self.lines.entry(tenant).or_insert(fresh);
        line.floor = if line.drained.take().is_some() { live - 1 } else { line.floor.min(live - 1) };
        if let Some(free) = free {
            // What lies between belongs to others, unless there are windows that were not read yet.
            line.mark = if line.waits || self.lags { line.mark.min(free - 1) } else { free - 1 };
            line.waits = true;
        }
    }

    /// A known tenant was looked at, from its mark or from lower down.
    fn looked_at(
        &mut self,
        tenant: &str,
        live: Option<i64>,
        free: Option<i64>,
        sweep: Sweep,
        last_place: i64,
    ) {
        let Some(line) = self.lines.get_mut(tenant) else { return };
        // Nothing lives before that; and at the end of the line, nothing up to the last place that was drawn before.
        let nothing_before = live.map_or(last_place, |live| live - 1);
        line.mark = line.mark.max(nothing_before);
        if sweep != Sweep::Late {
            line.floor = nothing_before;
            line.drained = if live.is_none() { line.drained.or(Some(Instant::now())) } else { None };
        }
        if let Some(free) = free {
            line.mark = if sweep == Sweep::Late { free - 1 } else { line.mark.min(free - 1) };
        }
        line.waits = free.is_some();
    }

    /// Forgets the tenants that have been without a row for the longest time.
    fn forget(&mut self) {
        let mut drained: Vec<Instant> = self.lines.values().filter_map(|line| line.drained).collect();
        if drained.len() > MOST_DRAINED {
            let (_, newest, _) =
                drained.select_nth_unstable_by_key(MOST_DRAINED / 2, |since| std::cmp::Reverse(*since));
            let newest = *newest;
            self.lines.retain(|_, line| line.drained.is_none_or(|since| since > newest));
        }
    }

    /// Takes in what a survey found. Answers how far it read, and with the last place drawn.
    fn learn(&mut self, header: &PgRow, rows: &[PgRow], plan: &Plan) -> Result<(i64, i64), sqlx::Error> {
        let (scanned_to, last_place) = (header.try_get(3)?, header.try_get(2)?);
        self.lags = header.try_get(4)?;
        let mut upon = Vec::new();
        for row in rows {
            let (tenant, live, free): (&str, _, _) = (row.try_get(5)?, row.try_get(6)?, row.try_get(7)?);
            match (row.try_get(8)?, live) {
                (true, live) => self.looked_at(tenant, live, free, plan.sweep, last_place),
                (false, Some(live)) => upon.push((tenant, live, free)),
                (false, None) => {}
            }
        }
        // A late commit may lie below the place from where its tenant was looked at, so it has the last word.
        for (tenant, live, free) in upon {
            self.came_upon(tenant.to_owned(), live, free);
        }
        self.forget();
        Ok((scanned_to, last_place))
    }

    /// Tenants that have something waiting.
    fn waiting(&self) -> Vec<String> {
        let waiting = self.lines.iter().filter(|(_, line)| line.waits);
        waiting.map(|(tenant, _)| tenant.clone()).collect()
    }
}

/// How one survey is made.
#[derive(Debug)]
struct Plan {
    look: Option<Look>,
    start: i64,
    /// Known tenants, and from where each is looked at, if it is.
    known: Vec<(String, Option<i64>)>,
    sweep: Sweep,
    gaps: bool,
}

impl FairClaimer {
    pub(super) fn new(sql: Arc<FairSql>, sweeps: Sweeps) -> Self {
        Self { sql, sweeps, memory: tokio::sync::Mutex::new(Memory::new(Instant::now())) }
    }

    pub(super) async fn claim(
        &self,
        connections: &Connections,
        queue: &Arc<Queue>,
        want: Want,
        weights: &TenantWeights,
    ) -> Result<Vec<(i64, Claimed)>, Error> {
        let mut memory = self.memory.lock().await;
        let claimed = self.claim_turns(&mut memory, connections, queue, want, weights).await;
        if claimed.is_err() {
            *memory = Memory::new(Instant::now());
        }
        claimed
    }

    /// How far each line was read, for tests that read the plans of what comes next.
    pub(super) async fn marks(&self) -> (i64, Vec<(String, i64, bool)>) {
        let memory = self.memory.lock().await;
        let lines = memory.lines.iter().map(|(tenant, line)| (tenant.clone(), line.mark, line.waits));
        (memory.horizon.marks()[0], lines.collect())
    }

    async fn claim_turns(
        &self,
        memory: &mut Memory,
        connections: &Connections,
        queue: &Arc<Queue>,
        want: Want,
        weights: &TenantWeights,
    ) -> Result<Vec<(i64, Claimed)>, Error> {
        let mut empty_handed = false;
        let mut seen_to = None;
        loop {
            let plan = memory.plan(self.sweeps, empty_handed, Instant::now());
            let asked = plan.gaps;
            let mut scanned_to = self.survey(memory, connections, queue, want, plan).await?;
            if memory.lags && !asked && Instant::now() >= memory.next_probe {
                // Who came with the rest of what is new has a turn in this claim, too.
                let plan = memory.plan(self.sweeps, false, Instant::now());
                scanned_to = self.survey(memory, connections, queue, want, plan).await?;
            }
            let claimed = self.take(memory, connections, queue, want, weights).await?;
            // With empty hands: look back once, and read all that is new.
            let is_over = empty_handed && (!memory.lags || seen_to >= Some(scanned_to));
            if !claimed.is_empty() || is_over {
                return Ok(claimed);
            }
            (empty_handed, seen_to) = (true, empty_handed.then_some(scanned_to));
        }
    }

    /// Finds out who has something waiting. Answers how far new rows were read.
    async fn survey(
        &self,
        memory: &mut Memory,
        connections: &Connections,
        queue: &Queue,
        want: Want,
        plan: Plan,
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
            .bind(count(want.limit.max(COME_DUE)))
            .bind(plan.start)
            .bind(xids)
            .bind(lows)
            .bind(count(WINDOW + 2 * want.limit))
            .bind(known)
            .bind(starts)
            .bind(plan.sweep != Sweep::Late)
            .bind(plan.gaps);
        let rows = connections.fetch_all(query).await?;
        let Some((header, rows)) = rows.split_first() else { return Ok(plan.start) };
        let running = snapshot(header, 0, 1)?;
        let (scanned_to, last_place) = memory.learn(header, rows, &plan).map_err(store_error)?;
        let took = began.elapsed();
        let now = Instant::now();
        if plan.gaps && plan.sweep == Sweep::Late {
            memory.next_probe = if took <= CHEAP { now } else { now + took * DUTY };
        }
        match &plan.look {
            None => memory.horizon.passed(&[Some(scanned_to)]),
            Some(look) => {
                let (last, full) = (vec![Some(scanned_to)], memory.lags);
                let seen = Seen { snapshot: running, last_place, low: i64::MAX, last, full, took };
                memory.horizon.looked(look, seen, want.lease_for, now);
                // Lines have floors of their own.
                memory.horizon.raise_floors(&[None]);
            }
        }
        Ok(scanned_to)
    }

    /// Leases each tenant's share, until the limit is reached or nobody has anything left.
    async fn take(
        &self,
        memory: &mut Memory,
        connections: &Connections,
        queue: &Arc<Queue>,
        want: Want,
        weights: &TenantWeights,
    ) -> Result<Vec<(i64, Claimed)>, Error> {
        let waiting = memory.waiting();
        let Memory { lines, turns, .. } = memory;
        let mut round = turns.round(weights, waiting, want.limit);
        loop {
            let shares = round.shares();
            if shares.is_empty() {
                return Ok(round.finish());
            }
            let starts: Vec<i64> =
                shares.iter().map(|(tenant, _)| lines.get(tenant).map_or(0, |line| line.mark)).collect();
            let query = self
                .sql
                .take
                .query()
                .bind(want.token.as_uuid())
                .bind(want.lease_for.as_secs_f64())
                .bind(queue.number)
                .bind(shares.iter().map(|(tenant, _)| tenant.as_str()).collect::<Vec<_>>())
                .bind(starts)
                .bind(shares.iter().map(|(_, share)| limit(*share)).collect::<Vec<_>>());
            let mut found: HashMap<String, Vec<(i64, Claimed)>> = HashMap::new();
            for row in connections.fetch_all(query).await? {
                let (_, place, one) =
                    read(&row, std::slice::from_ref(queue), want.token).map_err(store_error)?;
                let tenant = one.message.tenant().map_or("", TenantId::as_str).to_owned();
                found.entry(tenant).or_default().push((place, one));
            }
            for (tenant, share) in shares {
                let mut own = found.remove(&tenant).unwrap_or_default();
                own.sort_unstable_by_key(|(place, _)| *place);
                if let Some(line) = lines.get_mut(&tenant) {
                    line.mark = own.last().map_or(line.mark, |(place, _)| line.mark.max(*place));
                    line.waits = own.len() == share;
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

    fn line(memory: &Memory) -> (i64, i64, bool) {
        let line = memory.lines["a"];
        (line.mark, line.floor, line.waits)
    }

    fn memory() -> Memory {
        let mut memory = Memory::new(Instant::now());
        memory.came_upon("a".to_owned(), 10, Some(12));
        assert_eq!(line(&memory), (11, 9, true));
        memory
    }

    #[test]
    fn a_late_commit_lowers_the_mark_and_the_floor() {
        let mut memory = memory();
        memory.looked_at("a", Some(50), None, Sweep::Lapsed, 100);
        assert_eq!(line(&memory), (49, 49, false));
        memory.came_upon("a".to_owned(), 30, Some(30));
        assert_eq!(line(&memory), (29, 29, true));
    }

    #[test]
    fn what_others_left_behind_is_stepped_over() {
        let mut memory = memory();
        memory.looked_at("a", None, None, Sweep::Late, 100);
        assert_eq!(line(&memory), (100, 9, false), "the floor is for sweeps to raise");
        memory.looked_at("a", None, None, Sweep::Lapsed, 100);
        assert_eq!(line(&memory), (100, 100, false));
        memory.came_upon("a".to_owned(), 120, Some(120));
        assert_eq!(line(&memory), (119, 119, true));
    }

    #[test]
    fn behind_an_unread_window_no_mark_rises() {
        let mut memory = memory();
        memory.lags = true;
        memory.came_upon("a".to_owned(), 80, Some(80));
        assert_eq!(line(&memory), (11, 9, true));
    }

    #[test]
    fn only_tenants_without_a_row_are_forgotten() {
        let mut memory = memory();
        for number in 0..3 * MOST_DRAINED {
            let tenant = format!("tenant-{number}");
            memory.came_upon(tenant.clone(), 5, None);
            memory.looked_at(&tenant, None, None, Sweep::Full, 100);
            memory.forget();
        }
        assert!(memory.lines.len() <= MOST_DRAINED + 1, "{}", memory.lines.len());
        assert!(memory.lines.contains_key("a"));
        assert!(
            memory.lines.contains_key(&format!("tenant-{}", 3 * MOST_DRAINED - 1)),
            "the last is remembered"
        );
    }
}
