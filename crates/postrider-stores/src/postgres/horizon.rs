//! How far a claimer has read, and how far back it must look.
//!
//! The name is PostgreSQL's: the xmin horizon is the oldest transaction that a snapshot may still see running, and the rules below
//! derive from it where a claim must start.
//!
//! Positions are not commit order: a transaction that drew a position long ago may commit now, below the position that a claimer
//! has reached (its *low-water mark*, where its next claim starts). Reading from the head of the index each time would find the
//! row, and would also walk every dead entry that vacuum may not remove yet, which is why queues collapse while a session holds a
//! snapshot. So claims start at the low-water mark, and once a tick a **look-back** starts exactly as far below it as a row can
//! have appeared:
//!
//! - A transaction has its xid before it draws a position (the default of the column assigns it). So a row at or below the
//!   low-water mark that a look-back could not see belongs to an xid that was running then, and appears only when that xid ends.
//!   Running are the xids that the snapshot lists, *and* those from its `xmax` to the next xid to be assigned: `xmax` is one past
//!   the last that completed, and transactions that began after that are not listed.
//! - Every look-back records `(next xid, last position drawn)`. A transaction with an xid from there on began after that
//!   look-back, so its positions lie above that look-back's last position. The newest such sample bounds how low a transaction
//!   can have written.
//! - So the next look-back starts at the lowest bound of the xids **that have ended since**, computed by the statement itself
//!   from its own snapshot. An idle writer has not ended, and costs nothing until it does.
//!
//! "Last position drawn" is the one that the look-back *before* read: a statement's snapshot is older than anything it reads from
//! a sequence.
//!
//! Other rows below the low-water mark: expired and released leases, and rows that another claimer had locked when this one passed
//! and then left. An **expiry sweep** starts at the oldest live row; a **full sweep** starts at zero, when this memory is new and
//! once a minute. Both are limited to a share of the time, and a claimer that found nothing sweeps whenever that is cheap. All of
//! this is hints: losing them costs a longer scan and nothing else, so they are discarded whenever the connection fails, or leads to
//! another server, as after a failover behind a pooler.

use std::{
    collections::VecDeque,
    time::{Duration, Instant, SystemTime},
};

/// How often a busy claimer looks back.
pub(super) const TICK: Duration = Duration::from_millis(100);
const FULL_SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Sweeps may use at most 1/20 of the time.
const SWEEP_TIME_DIVISOR: u32 = 20;
/// A claimer that found nothing always sweeps when the last sweep took no longer than this.
const CHEAP: Duration = Duration::from_secs(1);
/// Bounds memory while a transaction stays open for hours; thinning only lowers bounds.
const MAX_SAMPLES: usize = 4096;

/// The memory of a claimer about a set of queues, which it always reads together.
#[derive(Debug)]
pub(super) struct Horizon {
    cursors: Vec<QueueCursor>,
    /// The last position drawn, as the last look-back read it.
    last_position: i64,
    seen: Option<Snapshot>,
    samples: VecDeque<Sample>,
    last_sweep_took: Duration,
    next_tick: Instant,
    next_expiry_sweep: Instant,
    next_full_sweep: Instant,
}

/// How far one queue was read.
#[derive(Debug, Clone, Copy, Default)]
struct QueueCursor {
    /// Every row at or below was seen, except those that the sweeps find.
    low_water: i64,
    /// No row lives at or below, as far as the last sweep saw.
    floor: i64,
    /// A look-back that reached its limit below the low-water mark continues here.
    unfinished: Option<i64>,
}

/// No transaction with an xid of `next` or above has written at or below `position`.
#[derive(Debug, Clone, Copy)]
struct Sample {
    next: u64,
    position: i64,
}

/// The plan of one look-back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LookBack {
    /// For each queue: the highest position at which to start.
    pub(super) starts: Vec<i64>,
    /// Start lower when one of these transactions has ended: its xid, and the bound below which it has not written.
    pub(super) xids: Vec<String>,
    pub(super) lows: Vec<i64>,
    pub(super) sweep: Sweep,
    /// The highest position known to have been drawn before the look-back.
    drawn_before: i64,
    position_before: i64,
}

/// How far down a look-back goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sweep {
    /// As far as late commits can be.
    Late,
    /// From the oldest live row.
    Expired,
    /// From the beginning.
    Full,
}

/// The result of a look-back.
#[derive(Debug)]
pub(super) struct LookBackResult {
    pub(super) snapshot: Snapshot,
    /// The last position drawn, read by the look-back.
    pub(super) last_position: i64,
    /// The lowest bound of the transactions that had ended.
    pub(super) low: i64,
    /// For each queue: the last position it returned.
    pub(super) last: Vec<Option<i64>>,
    /// Whether it stopped at its limit, so that there may be more rows.
    pub(super) full: bool,
    pub(super) took: Duration,
}

/// The transactions that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Every transaction that runs now or later has this xid or a higher one.
    xmin: u64,
    /// Every transaction assigned after this snapshot has this xid or a higher one.
    next: u64,
    running: Vec<u64>,
    /// Transactions with this xid or a higher one run as well, too many to list.
    unlisted: Option<u64>,
    /// When the server started: another time means another server, such as a standby that was promoted behind a pooler.
    server_started_at: SystemTime,
}

/// The number of xids from `xmax` on that are listed as running. A transaction with more subtransactions than this has them read
/// from its bound until it ends, instead of being watched.
const MAX_LISTED: u64 = 1_000;

impl Snapshot {
    /// Reads the text of a `pg_snapshot`, `xmin:xmax:running`, and `age('3'::xid)`, from which the next xid to be assigned follows.
    pub(super) fn parse(text: &str, age: i32, server_started_at: SystemTime) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let xmin = parts.next()?.parse().ok()?;
        let xmax: u64 = parts.next()?.parse().ok()?;
        let listed = parts.next()?.split(',').filter(|xid| !xid.is_empty());
        let mut running = listed.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        // The age has 32 bits, and so has its distance from `xmax`, in either direction: it may have been read before the snapshot.
        let low = 3_u32.wrapping_add_signed(age);
        let xmax_low = u32::try_from(xmax & u64::from(u32::MAX)).ok()?;
        let distance = low.wrapping_sub(xmax_low).cast_signed();
        let next = xmax.saturating_add_signed(distance.into()).max(xmin);
        let listed_to = xmax.saturating_add(MAX_LISTED);
        running.extend(xmax..next.min(listed_to));
        let unlisted = (next > listed_to).then_some(listed_to);
        Some(Self { xmin, next, running, unlisted, server_started_at })
    }
}

impl Horizon {
    /// Knows nothing yet of `queues` queues: the first look-back is a full sweep.
    pub(super) fn new(queues: usize, now: Instant) -> Self {
        Self {
            cursors: vec![QueueCursor::default(); queues],
            last_position: 0,
            seen: None,
            samples: VecDeque::new(),
            last_sweep_took: Duration::ZERO,
            next_tick: now,
            next_expiry_sweep: now,
            next_full_sweep: now,
        }
    }

    /// For each queue: where a claim without a look-back starts.
    pub(super) fn low_water_marks(&self) -> Vec<i64> {
        self.cursors.iter().map(|cursor| cursor.low_water).collect()
    }

    /// A claim from the low-water marks returned, for each queue, every claimable row up to `last`.
    pub(super) fn advance(&mut self, last: &[Option<i64>]) {
        for (cursor, last) in self.cursors.iter_mut().zip(last) {
            cursor.low_water = cursor.low_water.max(last.unwrap_or(0));
        }
    }

    /// Whether it is time to look back.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next_tick || self.cursors.iter().any(|cursor| cursor.unfinished.is_some())
    }

    /// For each queue: where the search for the oldest live row starts.
    pub(super) fn floors(&self) -> Vec<i64> {
        self.cursors.iter().map(|cursor| cursor.floor).collect()
    }

    /// For each queue: no row lives at or below this position; in a queue without rows, at or below the low-water mark.
    pub(super) fn raise_floors(&mut self, floors: &[Option<i64>]) {
        for (cursor, floor) in self.cursors.iter_mut().zip(floors) {
            cursor.floor = floor.unwrap_or(cursor.low_water);
        }
    }

    /// No open transaction can still write at or below this position.
    pub(super) fn settled_floor(&self) -> i64 {
        self.seen.as_ref().and_then(|seen| self.bound(seen.xmin)).unwrap_or(0)
    }

    /// Plans a look-back. After a claim that found nothing it sweeps when that is cheap.
    pub(super) fn plan_look_back(&mut self, found_nothing: bool, now: Instant) -> LookBack {
        let cheap = found_nothing && self.last_sweep_took <= CHEAP;
        let sweep = if now >= self.next_full_sweep || self.seen.is_none() {
            Sweep::Full
        } else if now >= self.next_expiry_sweep || cheap {
            Sweep::Expired
        } else {
            Sweep::Late
        };
        // Transactions that began after the last look-back write above the positions drawn before it.
        let began_since = self.samples.back().map_or(0, |sample| sample.position);
        let unlisted = self.seen.as_ref().and_then(|seen| seen.unlisted);
        let unlisted_low = unlisted.map_or(i64::MAX, |xid| self.bound(xid).unwrap_or(0));
        let starts = self.cursors.iter().map(|cursor| {
            let start = match sweep {
                Sweep::Full => 0,
                Sweep::Expired => cursor.floor.min(began_since),
                Sweep::Late => began_since,
            };
            start.min(cursor.low_water).min(unlisted_low).min(cursor.unfinished.unwrap_or(i64::MAX))
        });
        let starts = starts.collect();
        let running = self.seen.as_ref().map_or(&[][..], |seen| &seen.running);
        self.next_tick = now + TICK;
        LookBack {
            starts,
            xids: running.iter().map(u64::to_string).collect(),
            lows: running.iter().map(|xid| self.bound(*xid).unwrap_or(0)).collect(),
            sweep,
            drawn_before: self
                .cursors
                .iter()
                .map(|cursor| cursor.low_water)
                .fold(self.last_position, i64::max),
            position_before: self.last_position,
        }
    }

    /// Whether a snapshot is of another server than the last one. Positions and xids that were read there may not exist here, or may
    /// be drawn again.
    pub(super) fn is_of_another_server(&self, snapshot: &Snapshot) -> bool {
        self.seen.as_ref().is_some_and(|seen| seen.server_started_at != snapshot.server_started_at)
    }

    /// Applies the result of a look-back.
    pub(super) fn record_look_back(
        &mut self,
        look: &LookBack,
        seen: LookBackResult,
        lease: Duration,
        now: Instant,
    ) {
        if self.is_of_another_server(&seen.snapshot) {
            *self = Self::new(self.cursors.len(), now);
            return;
        }
        for ((cursor, start), last) in self.cursors.iter_mut().zip(&look.starts).zip(&seen.last) {
            let start = (*start).min(seen.low);
            cursor.floor = cursor.floor.min(start);
            cursor.unfinished = match last {
                _ if !seen.full => None,
                // It may not have reached this queue at all.
                None => Some(start),
                Some(last) => Some(*last),
            }
            .filter(|position| *position < cursor.low_water);
            // Read to the end: a row up to `position_before` that it did not see belongs to a transaction that still runs.
            let read_to =
                if seen.full { last.unwrap_or(0) } else { last.unwrap_or(0).max(look.position_before) };
            cursor.low_water = cursor.low_water.max(read_to);
        }
        if look.sweep != Sweep::Late {
            let wait = seen.took * SWEEP_TIME_DIVISOR;
            self.last_sweep_took = seen.took;
            self.next_expiry_sweep = now + wait.max(expiry_sweep_interval(lease));
            if look.sweep == Sweep::Full {
                self.next_full_sweep = now + wait.max(FULL_SWEEP_EVERY);
            }
        }
        self.remember(Sample { next: seen.snapshot.next, position: look.drawn_before }, seen.snapshot.xmin);
        self.last_position = seen.last_position;
        self.seen = Some(seen.snapshot);
    }

    fn remember(&mut self, sample: Sample, xmin: u64) {
        self.samples.push_back(sample);
        // Samples below the newest one that bounds every running transaction are never used again.
        while self.samples.len() > 1 && self.samples[1].next <= xmin {
            self.samples.pop_front();
        }
        if self.samples.len() > MAX_SAMPLES {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.samples.push_back(sample);
        }
    }

    /// The transaction `xid` has written nothing at or below this position.
    fn bound(&self, xid: u64) -> Option<i64> {
        self.samples.iter().rev().find(|sample| sample.next <= xid).map(|sample| sample.position)
    }
}

/// The interval of expiry sweeps: short for short leases, long for long ones.
fn expiry_sweep_interval(lease: Duration) -> Duration {
    (lease / 10).clamp(Duration::from_millis(200), Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    #[test]
    fn snapshot_parse_counts_xids_from_xmax_to_next_as_running() {
        // 750 and 752 are listed; the last that completed is 754; 755 to 757 have begun since.
        let snapshot = Snapshot::parse("750:755:750,752", 758 - 3, UNIX_EPOCH).unwrap();
        assert_eq!(snapshot.running, [750, 752, 755, 756, 757]);
        assert_eq!((snapshot.xmin, snapshot.next), (750, 758));
    }

    #[test]
    fn snapshot_parse_derives_next_xid_across_32_bit_wraparound() {
        let epoch = 5_u64 << 32;
        let snapshot = Snapshot::parse(&format!("{0}:{0}:", epoch - 2), 1 - 3, UNIX_EPOCH).unwrap();
        assert_eq!(snapshot.running, [epoch - 2, epoch - 1, epoch]);
        let high = epoch + 3_000_000_000;
        let age = i32::from_ne_bytes((3_000_000_001_u32 - 3).to_ne_bytes());
        assert_eq!(Snapshot::parse(&format!("{high}:{high}:"), age, UNIX_EPOCH).unwrap().running, [high]);
    }

    #[test]
    fn snapshot_parse_with_next_xid_before_xmax_lists_nothing_across_wraparound() {
        let epoch = 2_u64 << 32;
        let read_before = i32::from_ne_bytes((u32::MAX - 1 - 3).to_ne_bytes());
        let text = format!("{}:{}:{}", epoch - 9, epoch + 5, epoch - 9);
        let snapshot = Snapshot::parse(&text, read_before, UNIX_EPOCH).unwrap();
        assert_eq!((snapshot.running, snapshot.next), (vec![epoch - 9], epoch - 2));
        let text = format!("{0}:{0}:", epoch + 5);
        let snapshot = Snapshot::parse(&text, read_before, UNIX_EPOCH).unwrap();
        assert_eq!((snapshot.running, snapshot.next), (vec![], epoch + 5), "never below xmin");
    }

    #[test]
    fn subtransactions_beyond_the_list_are_read_from_their_bound() {
        let mut driver = Driver::new();
        driver.look_back(&[], 100, 50);
        driver.look_back(&[], 110, 60);
        driver.horizon.advance(&[Some(70)]);
        let many = Snapshot::parse("110:110:", 400_110 - 3, UNIX_EPOCH).unwrap();
        assert_eq!((many.running.len(), many.unlisted), (1_000, Some(1_110)));
        let look = driver.horizon.plan_look_back(false, driver.now);
        driver.horizon.record_look_back(&look, Driver::result(many, 80), Duration::from_secs(60), driver.now);
        for position in [90, 100, 110] {
            let look = driver.horizon.plan_look_back(false, driver.now);
            assert!(look.starts[0] <= 60, "any of them may end at any time: {look:?}");
            let many = Snapshot::parse("110:110:", 400_110 - 3, UNIX_EPOCH).unwrap();
            let result = Driver::result(many, position);
            driver.horizon.record_look_back(&look, result, Duration::from_secs(60), driver.now);
        }
        driver.look_back(&[], 400_120, 120);
        assert!(driver.look_back(&[], 400_130, 130) > 60, "over when they have ended");
    }

    #[test]
    fn look_back_on_another_server_starts_the_horizon_anew() {
        let mut driver = Driver::new();
        driver.look_back(&[], 100, 50);
        driver.look_back(&[], 110, 60);
        driver.horizon.advance(&[Some(60)]);
        let look = driver.horizon.plan_look_back(false, driver.now);
        let promoted = Snapshot {
            xmin: 105,
            next: 105,
            running: vec![],
            unlisted: None,
            server_started_at: UNIX_EPOCH + Duration::from_secs(1),
        };
        driver.horizon.record_look_back(
            &look,
            Driver::result(promoted, 40),
            Duration::from_secs(60),
            driver.now,
        );
        assert_eq!((driver.horizon.low_water_marks(), driver.horizon.settled_floor()), (vec![0], 0));
        assert_eq!(driver.horizon.plan_look_back(false, driver.now).sweep, Sweep::Full);
    }

    #[test]
    fn snapshot_parse_of_malformed_text_is_none() {
        for text in ["", "1", "1:2", "a:2:", "1:2:x"] {
            assert_eq!(Snapshot::parse(text, 0, UNIX_EPOCH), None, "{text:?}");
        }
    }

    /// A horizon of one queue, driven by the test: each look-back returns where it would start.
    struct Driver {
        horizon: Horizon,
        now: Instant,
    }

    impl Driver {
        fn new() -> Self {
            let now = Instant::now();
            Self { horizon: Horizon::new(1, now), now }
        }

        /// A look-back that read to the end and returned nothing.
        fn result(snapshot: Snapshot, last_position: i64) -> LookBackResult {
            LookBackResult {
                snapshot,
                last_position,
                low: i64::MAX,
                last: vec![None],
                full: false,
                took: Duration::from_millis(1),
            }
        }

        /// Looks back while `running` run and `next` is the next xid; every position up to `position` has been drawn. Returns where
        /// the look-back starts, given that the transactions not in `running` have ended.
        fn look_back(&mut self, running: &[u64], next: u64, position: i64) -> i64 {
            let look = self.horizon.plan_look_back(false, self.now);
            let ended =
                look.xids.iter().zip(&look.lows).filter(|(xid, _)| !running.contains(&xid.parse().unwrap()));
            let low = ended.map(|(_, low)| *low).min().unwrap_or(i64::MAX);
            let xmin = running.iter().copied().min().unwrap_or(next);
            let snapshot = Snapshot {
                xmin,
                next,
                running: running.to_vec(),
                unlisted: None,
                server_started_at: UNIX_EPOCH,
            };
            let start = look.starts[0].min(low);
            let seen = LookBackResult { low, ..Self::result(snapshot, position) };
            self.horizon.record_look_back(&look, seen, Duration::from_secs(60), self.now);
            self.horizon.raise_floors(&[None]);
            start
        }
    }

    #[test]
    fn first_look_back_starts_at_zero() {
        assert_eq!(Driver::new().look_back(&[], 100, 50), 0);
    }

    #[test]
    fn look_back_without_running_transactions_starts_at_last_sample() {
        let mut driver = Driver::new();
        driver.look_back(&[], 100, 50);
        driver.look_back(&[], 110, 60);
        driver.horizon.advance(&[Some(60)]);
        assert_eq!(
            driver.look_back(&[], 120, 70),
            50,
            "transactions that began since the last look-back write above the positions drawn before it"
        );
        assert_eq!(driver.look_back(&[], 130, 80), 60);
    }

    #[test]
    fn open_transaction_does_not_lower_look_back_until_it_ends() {
        let mut driver = Driver::new();
        driver.look_back(&[], 100, 50);
        driver.look_back(&[105], 110, 60);
        for step in 0..1_000 {
            let position = 70 + step;
            driver.horizon.advance(&[Some(position)]);
            assert!(driver.look_back(&[105], 120 + step as u64, position) >= position - 21, "step {step}");
        }
        assert!(
            driver.look_back(&[], 2_000, 2_000) <= 50,
            "105 began after the first look-back, which knew of no drawn position"
        );
    }

    #[test]
    fn settled_floor_stays_below_open_transaction() {
        let mut driver = Driver::new();
        driver.look_back(&[], 100, 50);
        driver.look_back(&[], 110, 60);
        driver.look_back(&[115], 120, 70);
        assert!(driver.horizon.settled_floor() <= 60, "115 may still write above 60");
        driver.look_back(&[], 130, 80);
        driver.look_back(&[], 140, 90);
        assert!(driver.horizon.settled_floor() >= 70);
    }

    #[test]
    fn look_back_that_reached_its_limit_continues_where_it_stopped() {
        let mut driver = Driver::new();
        driver.look_back(&[], 100, 50);
        driver.horizon.advance(&[Some(100)]);
        let look = driver.horizon.plan_look_back(false, driver.now);
        let snapshot =
            Snapshot { xmin: 110, next: 110, running: vec![], unlisted: None, server_started_at: UNIX_EPOCH };
        let seen = LookBackResult {
            snapshot,
            last_position: 100,
            low: i64::MAX,
            last: vec![Some(30)],
            full: true,
            took: Duration::ZERO,
        };
        driver.horizon.record_look_back(&look, seen, Duration::from_secs(60), driver.now);
        assert!(driver.horizon.is_due(driver.now), "due at once");
        assert!(driver.horizon.plan_look_back(false, driver.now).starts[0] <= 30);
    }

    #[test]
    fn samples_stay_bounded_beside_endless_transaction() {
        let mut driver = Driver::new();
        for step in 0..20_000 {
            driver.look_back(&[1], 2 + step, i64::try_from(step).unwrap());
        }
        assert!(driver.horizon.samples.len() <= MAX_SAMPLES + 1);
        assert_eq!(driver.look_back(&[], 30_000, 30_000), 0, "and its rows are still found");
    }
}
