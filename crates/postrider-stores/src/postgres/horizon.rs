//! How far a claimer has read, and how far back it must look.
//!
//! Places in the line are not commit order: a transaction that drew a place long ago may commit now, below the place that
//! a claimer has reached (its *mark*). Looking from the head of the index each time would find it, and would also
//! walk every dead entry that vacuum may not remove yet, which is what makes queues collapse while somebody holds a
//! snapshot. So claims start at the mark, and once a tick a **look** starts exactly as far below it as something can have
//! appeared:
//!
//! - A transaction has its xid before it draws a place (the column's default sees to that). So a row at or below the mark
//!   that a look could not see belongs to an xid that was running then, and appears only when that xid ends. Running are
//!   the xids that the snapshot lists, *and* those from its `xmax` to the next xid to be assigned: `xmax` is one past the
//!   last that completed, and what began after that is not listed.
//! - At every look we remember `(next xid, last place drawn)`. A transaction with an xid from there on began after that
//!   look, so its places lie above that look's last place. The newest such look bounds how low a transaction can
//!   have written.
//! - So the next look starts at the lowest bound of the xids **that have ended since**, computed by the statement itself
//!   from its own snapshot. An idle writer has not ended, and costs nothing until it does.
//!
//! "Last place drawn" is the one that the look *before* read: a statement's snapshot is older than anything it reads from
//! a sequence.
//!
//! What else may lie below the mark: leases that lapsed or were released, and rows that somebody else had locked when we
//! passed and then left. A **lapse sweep** starts at the oldest row that was alive; a **full sweep** starts at zero, when
//! this memory is new and once a minute. Both are limited to a part of the time, and a claimer with empty hands sweeps
//! whenever that is cheap. All of it is hints: losing it costs a longer scan and nothing else, and so it is
//! thrown away whenever the connection fails.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How often a busy claimer looks back.
pub(super) const TICK: Duration = Duration::from_millis(100);
const FULL_SWEEP_EVERY: Duration = Duration::from_secs(60);
/// A sweep may take at most one part in so many of the time.
const DUTY: u32 = 20;
/// A sweep that took no longer is always worth making for a claimer with empty hands.
const CHEAP: Duration = Duration::from_secs(1);
/// Bounds memory while a transaction stays open for hours; thinning only lowers bounds.
const MOST_SAMPLES: usize = 4096;

/// What a claimer remembers of a set of queues, which it always reads together.
#[derive(Debug)]
pub(super) struct Horizon {
    tracks: Vec<Track>,
    /// The last place drawn, as the last look read it.
    last_place: i64,
    seen: Option<Snapshot>,
    samples: VecDeque<Sample>,
    last_sweep_took: Duration,
    next_tick: Instant,
    next_lapse: Instant,
    next_full: Instant,
}

/// How far one queue was read.
#[derive(Debug, Clone, Copy, Default)]
struct Track {
    /// Everything at or below was seen, but for what the sweeps are for.
    mark: i64,
    /// No row lives at or below, as far as the last sweep saw.
    floor: i64,
    /// A look that reached its limit below the mark goes on here.
    unfinished: Option<i64>,
}

/// No transaction with an xid of `next` or above has written at or below `place`.
#[derive(Debug, Clone, Copy)]
struct Sample {
    next: u64,
    place: i64,
}

/// How a look is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Look {
    /// For each queue: start here at the highest.
    pub(super) starts: Vec<i64>,
    /// Start lower when one of these transactions has ended: its xid, and where it may have written.
    pub(super) xids: Vec<String>,
    pub(super) lows: Vec<i64>,
    pub(super) sweep: Sweep,
    /// The highest place known to have been drawn before the look.
    drawn_before: i64,
    place_before: i64,
}

/// How far down a look goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sweep {
    /// As far as late commits can be.
    Late,
    /// From the oldest live row.
    Lapsed,
    /// From the beginning.
    Full,
}

/// What a look found.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) snapshot: Snapshot,
    /// The last place drawn, read by the look.
    pub(super) last_place: i64,
    /// The lowest bound of the transactions that had ended.
    pub(super) low: i64,
    /// For each queue: the last place it handed out.
    pub(super) last: Vec<Option<i64>>,
    /// Whether it stopped at its limit, so that there may be more.
    pub(super) full: bool,
    pub(super) took: Duration,
}

/// Which transactions run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Snapshot {
    /// Whatever runs now or later has this xid or a higher one.
    xmin: u64,
    /// What was assigned after this snapshot has this xid or a higher one.
    next: u64,
    running: Vec<u64>,
}

impl Snapshot {
    /// Reads the text of a `pg_snapshot`, `xmin:xmax:running`, and `age('3'::xid)`, which tells the next xid to be assigned.
    pub(super) fn parse(text: &str, age: i32) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let xmin = parts.next()?.parse().ok()?;
        let xmax: u64 = parts.next()?.parse().ok()?;
        let listed = parts.next()?.split(',').filter(|xid| !xid.is_empty());
        let mut running = listed.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        // The age counts 32 bits; the snapshot knows the rest.
        let low = 3_u32.wrapping_add_signed(age);
        let mut next = (xmax & !u64::from(u32::MAX)) | u64::from(low);
        if next + (1 << 31) < xmax {
            next += 1 << 32;
        }
        running.extend(xmax..next);
        Some(Self { xmin, next, running })
    }
}

impl Horizon {
    /// Knows nothing yet of `queues` queues: the first look is a full sweep.
    pub(super) fn new(queues: usize, now: Instant) -> Self {
        Self {
            tracks: vec![Track::default(); queues],
            last_place: 0,
            seen: None,
            samples: VecDeque::new(),
            last_sweep_took: Duration::ZERO,
            next_tick: now,
            next_lapse: now,
            next_full: now,
        }
    }

    /// For each queue: where a claim that does not look back starts.
    pub(super) fn marks(&self) -> Vec<i64> {
        self.tracks.iter().map(|track| track.mark).collect()
    }

    /// A claim from the marks handed out, for each queue, everything claimable up to there.
    pub(super) fn passed(&mut self, last: &[Option<i64>]) {
        for (track, last) in self.tracks.iter_mut().zip(last) {
            track.mark = track.mark.max(last.unwrap_or(0));
        }
    }

    /// Whether it is time to look back.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.next_tick || self.tracks.iter().any(|track| track.unfinished.is_some())
    }

    /// For each queue: where the search for the oldest live row starts.
    pub(super) fn floors(&self) -> Vec<i64> {
        self.tracks.iter().map(|track| track.floor).collect()
    }

    /// For each queue: no row lives at or below this place; where none lives at all, at or below the mark.
    pub(super) fn raise_floors(&mut self, floors: &[Option<i64>]) {
        for (track, floor) in self.tracks.iter_mut().zip(floors) {
            track.floor = floor.unwrap_or(track.mark);
        }
    }

    /// No open transaction can still write at or below this place.
    pub(super) fn settled_floor(&self) -> i64 {
        self.seen.as_ref().and_then(|seen| self.bound(seen.xmin)).unwrap_or(0)
    }

    /// How to look back now. With empty hands it sweeps when that is cheap.
    pub(super) fn look(&mut self, empty_handed: bool, now: Instant) -> Look {
        let cheap = empty_handed && self.last_sweep_took <= CHEAP;
        let sweep = if now >= self.next_full || self.seen.is_none() {
            Sweep::Full
        } else if now >= self.next_lapse || cheap {
            Sweep::Lapsed
        } else {
            Sweep::Late
        };
        // What began after the last look lies above what had been drawn before it.
        let began_since = self.samples.back().map_or(0, |sample| sample.place);
        let starts = self.tracks.iter().map(|track| {
            let start = match sweep {
                Sweep::Full => 0,
                Sweep::Lapsed => track.floor.min(began_since),
                Sweep::Late => began_since,
            };
            start.min(track.mark).min(track.unfinished.unwrap_or(i64::MAX))
        });
        let starts = starts.collect();
        let running = self.seen.as_ref().map_or(&[][..], |seen| &seen.running);
        self.next_tick = now + TICK;
        Look {
            starts,
            xids: running.iter().map(u64::to_string).collect(),
            lows: running.iter().map(|xid| self.bound(*xid).unwrap_or(0)).collect(),
            sweep,
            drawn_before: self.tracks.iter().map(|track| track.mark).fold(self.last_place, i64::max),
            place_before: self.last_place,
        }
    }

    /// What the look found.
    pub(super) fn looked(&mut self, look: &Look, seen: Seen, lease: Duration, now: Instant) {
        for ((track, start), last) in self.tracks.iter_mut().zip(&look.starts).zip(&seen.last) {
            let start = (*start).min(seen.low);
            track.floor = track.floor.min(start);
            track.unfinished = match last {
                _ if !seen.full => None,
                // It may not have come to this queue at all.
                None => Some(start),
                Some(last) => Some(*last),
            }
            .filter(|place| *place < track.mark);
            // Read to the end: what it did not see up to `place_before` belongs to a transaction that still runs.
            let read_to =
                if seen.full { last.unwrap_or(0) } else { last.unwrap_or(0).max(look.place_before) };
            track.mark = track.mark.max(read_to);
        }
        if look.sweep != Sweep::Late {
            let wait = seen.took * DUTY;
            self.last_sweep_took = seen.took;
            self.next_lapse = now + wait.max(lapse_every(lease));
            if look.sweep == Sweep::Full {
                self.next_full = now + wait.max(FULL_SWEEP_EVERY);
            }
        }
        self.remember(Sample { next: seen.snapshot.next, place: look.drawn_before }, seen.snapshot.xmin);
        self.last_place = seen.last_place;
        self.seen = Some(seen.snapshot);
    }

    fn remember(&mut self, sample: Sample, xmin: u64) {
        self.samples.push_back(sample);
        // Below the newest sample that bounds every running transaction: never asked for again.
        while self.samples.len() > 1 && self.samples[1].next <= xmin {
            self.samples.pop_front();
        }
        if self.samples.len() > MOST_SAMPLES {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.samples.push_back(sample);
        }
    }

    /// Nothing that `xid` wrote lies at or below this place.
    fn bound(&self, xid: u64) -> Option<i64> {
        self.samples.iter().rev().find(|sample| sample.next <= xid).map(|sample| sample.place)
    }
}

/// How often lapsed leases are looked for: often enough for short leases, rarely for long ones.
fn lapse_every(lease: Duration) -> Duration {
    (lease / 10).clamp(Duration::from_millis(200), Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_after_the_last_that_completed_is_running_too() {
        // 750 and 752 are listed; the last that completed is 754; 755 to 757 have begun since.
        let snapshot = Snapshot::parse("750:755:750,752", 758 - 3).unwrap();
        assert_eq!(snapshot.running, [750, 752, 755, 756, 757]);
        assert_eq!((snapshot.xmin, snapshot.next), (750, 758));
    }

    #[test]
    fn the_next_xid_is_told_across_the_wrap_of_its_low_half() {
        let epoch = 5_u64 << 32;
        let snapshot = Snapshot::parse(&format!("{0}:{0}:", epoch - 2), 1 - 3).unwrap();
        assert_eq!(snapshot.running, [epoch - 2, epoch - 1, epoch]);
        let high = epoch + 3_000_000_000;
        let age = i32::from_ne_bytes((3_000_000_001_u32 - 3).to_ne_bytes());
        assert_eq!(Snapshot::parse(&format!("{high}:{high}:"), age).unwrap().running, [high]);
    }

    #[test]
    fn an_unreadable_snapshot_is_none() {
        for text in ["", "1", "1:2", "a:2:", "1:2:x"] {
            assert_eq!(Snapshot::parse(text, 0), None, "{text:?}");
        }
    }

    /// A horizon of one queue, driven by hand: each look tells where it would start.
    struct Driver {
        horizon: Horizon,
        now: Instant,
    }

    impl Driver {
        fn new() -> Self {
            let now = Instant::now();
            Self { horizon: Horizon::new(1, now), now }
        }

        /// Looks while `running` run and `next` is the next xid; everything up to `place` has been drawn. Answers where the
        /// look starts, given that the transactions not in `running` have ended.
        fn look(&mut self, running: &[u64], next: u64, place: i64) -> i64 {
            let look = self.horizon.look(false, self.now);
            let ended =
                look.xids.iter().zip(&look.lows).filter(|(xid, _)| !running.contains(&xid.parse().unwrap()));
            let low = ended.map(|(_, low)| *low).min().unwrap_or(i64::MAX);
            let xmin = running.iter().copied().min().unwrap_or(next);
            let snapshot = Snapshot { xmin, next, running: running.to_vec() };
            let start = look.starts[0].min(low);
            let seen = Seen {
                snapshot,
                last_place: place,
                low,
                last: vec![None],
                full: false,
                took: Duration::from_millis(1),
            };
            self.horizon.looked(&look, seen, Duration::from_secs(60), self.now);
            self.horizon.raise_floors(&[None]);
            start
        }
    }

    #[test]
    fn the_first_look_starts_at_the_beginning() {
        assert_eq!(Driver::new().look(&[], 100, 50), 0);
    }

    #[test]
    fn a_quiet_server_is_read_from_the_mark() {
        let mut driver = Driver::new();
        driver.look(&[], 100, 50);
        driver.look(&[], 110, 60);
        driver.horizon.passed(&[Some(60)]);
        assert_eq!(
            driver.look(&[], 120, 70),
            50,
            "what began since the last look lies above what it knew to be drawn"
        );
        assert_eq!(driver.look(&[], 130, 80), 60);
    }

    #[test]
    fn an_idle_writer_costs_nothing_until_it_ends() {
        let mut driver = Driver::new();
        driver.look(&[], 100, 50);
        driver.look(&[105], 110, 60);
        for step in 0..1_000 {
            let place = 70 + step;
            driver.horizon.passed(&[Some(place)]);
            assert!(driver.look(&[105], 120 + step as u64, place) >= place - 21, "step {step}");
        }
        assert!(
            driver.look(&[], 2_000, 2_000) <= 50,
            "105 began after the first look, which knew of nothing drawn"
        );
    }

    #[test]
    fn a_place_below_an_open_transaction_is_not_settled() {
        let mut driver = Driver::new();
        driver.look(&[], 100, 50);
        driver.look(&[], 110, 60);
        driver.look(&[115], 120, 70);
        assert!(driver.horizon.settled_floor() <= 60, "115 may still write above 60");
        driver.look(&[], 130, 80);
        driver.look(&[], 140, 90);
        assert!(driver.horizon.settled_floor() >= 70);
    }

    #[test]
    fn a_look_that_was_cut_short_goes_on_where_it_stopped() {
        let mut driver = Driver::new();
        driver.look(&[], 100, 50);
        driver.horizon.passed(&[Some(100)]);
        let look = driver.horizon.look(false, driver.now);
        let snapshot = Snapshot { xmin: 110, next: 110, running: vec![] };
        let seen = Seen {
            snapshot,
            last_place: 100,
            low: i64::MAX,
            last: vec![Some(30)],
            full: true,
            took: Duration::ZERO,
        };
        driver.horizon.looked(&look, seen, Duration::from_secs(60), driver.now);
        assert!(driver.horizon.is_due(driver.now), "at once");
        assert!(driver.horizon.look(false, driver.now).starts[0] <= 30);
    }

    #[test]
    fn memory_stays_bounded_beside_an_endless_transaction() {
        let mut driver = Driver::new();
        for step in 0..20_000 {
            driver.look(&[1], 2 + step, i64::try_from(step).unwrap());
        }
        assert!(driver.horizon.samples.len() <= MOST_SAMPLES + 1);
        assert_eq!(driver.look(&[], 30_000, 30_000), 0, "and what it wrote is still found");
    }
}
