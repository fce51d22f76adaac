//! The hybrid logical clock (HLC): timestamps that respect cause and effect even when wall clocks are wrong.
//!
//! A reading is a wall-clock time in milliseconds and a counter, packed into one number. A [`HybridClock`] gives every event a
//! reading above all that it gave or saw before: the wall clock's when that has moved on, else the last one plus one.
//! So an effect always has a later reading than its cause, also across processes, and readings stay close to real time.
//!
//! - **No clock is authoritative.** Each process has its own clock, and merges the readings it receives.
//! - **The wall clock jumps back.** The counter continues, and carries into the milliseconds when it is full.
//! - **A process restarts.** [`HybridClock::resume`] continues above the highest stored reading.
//! - **A sender's clock is wrong.** Merging it would advance every clock permanently. The drift guard rejects it.
//! - **A message is redelivered.** Merge only the first delivery, as the inbox reports it: a duplicate must not move the clock.

use crate::Invalid;
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

/// One reading of the clock: 48 bits of milliseconds since 1970, then 16 bits of counter.
///
/// Its text has a fixed width and sorts like the reading itself. Serialised it is that text, since JSON readers in other
/// languages would round the number.
///
/// ```
/// # use postrider_core::Hlc;
/// let reading: Hlc = "001784021400123.00007".parse()?;
/// assert_eq!((reading.millis(), reading.counter()), (1_784_021_400_123, 7));
/// assert_eq!(reading.to_string(), "001784021400123.00007");
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Hlc(u64);

const COUNTER_BITS: u32 = 16;
const LAST_MILLI: u64 = u64::MAX >> COUNTER_BITS;
const MILLI_DIGITS: usize = 15;
const COUNTER_DIGITS: usize = 5;

impl Hlc {
    /// A reading as a store keeps it: `millis << 16 | counter`. It fits a signed column until the year 6429.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The reading as one number.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Milliseconds since 1970.
    pub const fn millis(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// The counter within one millisecond.
    pub const fn counter(self) -> u16 {
        (self.0 & u16::MAX as u64) as u16
    }

    /// The first reading of the wall clock's millisecond.
    fn wall(now: SystemTime) -> Self {
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self(whole_millis(since).min(LAST_MILLI) << COUNTER_BITS)
    }

    fn successor(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Hlc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0MILLI_DIGITS$}.{:0COUNTER_DIGITS$}", self.millis(), self.counter())
    }
}

impl FromStr for Hlc {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let digits = |part: &str, width| part.len() == width && part.bytes().all(|b| b.is_ascii_digit());
        text.split_once('.')
            .filter(|(millis, counter)| digits(millis, MILLI_DIGITS) && digits(counter, COUNTER_DIGITS))
            .and_then(|(millis, counter)| {
                let millis = millis.parse::<u64>().ok().filter(|millis| *millis <= LAST_MILLI)?;
                Some(Self(millis << COUNTER_BITS | u64::from(counter.parse::<u16>().ok()?)))
            })
            .ok_or_else(|| Invalid::rule("hlc", "is not a clock reading such as 001784021400123.00007"))
    }
}

impl From<Hlc> for String {
    fn from(reading: Hlc) -> Self {
        reading.to_string()
    }
}

impl TryFrom<String> for Hlc {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        text.parse()
    }
}

/// A hybrid logical clock, to be shared by everything in a process that stages or receives.
///
/// ```
/// # use postrider_core::hlc::HybridClock;
/// # use std::time::{Duration, SystemTime};
/// let (here, there) = (HybridClock::resume(None), HybridClock::resume(None));
/// let now = SystemTime::now();
/// let cause = there.tick(now);
/// // The wall clock of this machine is a second late, and still the effect reads later than its cause.
/// let effect = here.merge(cause, now - Duration::from_secs(1))?;
/// assert!(effect > cause);
/// # Ok::<(), postrider_core::hlc::ClockDriftError>(())
/// ```
#[derive(Debug)]
pub struct HybridClock {
    /// The last reading; zero, which no tick returns, when there is none.
    latest: AtomicU64,
    max_drift: Duration,
}

impl HybridClock {
    /// The default of [`with_max_drift`](Self::with_max_drift).
    pub const DEFAULT_MAX_DRIFT: Duration = Duration::from_secs(5 * 60);

    /// A clock that continues above `mark`, the highest reading stored before the process ended.
    pub fn resume(mark: Option<Hlc>) -> Self {
        Self { latest: AtomicU64::new(mark.map_or(0, Hlc::to_bits)), max_drift: Self::DEFAULT_MAX_DRIFT }
    }

    /// Rejects received readings that are more than `max_drift` ahead of the wall clock.
    #[must_use]
    pub fn with_max_drift(mut self, max_drift: Duration) -> Self {
        self.max_drift = max_drift;
        self
    }

    /// A reading for a local event at `now`, above all readings that this clock returned or merged before.
    pub fn tick(&self, now: SystemTime) -> Hlc {
        self.advance(Hlc::wall(now))
    }

    /// A reading for the receipt of a message that carries `received`, above that reading, too. Not for duplicates.
    ///
    /// # Errors
    /// When `received` is too far ahead of `now`. The clock stays unchanged.
    pub fn merge(&self, received: Hlc, now: SystemTime) -> Result<Hlc, ClockDriftError> {
        let wall = Hlc::wall(now);
        let ahead = Duration::from_millis(received.millis().saturating_sub(wall.millis()));
        if ahead > self.max_drift {
            return Err(ClockDriftError { received, wall, ahead, max_drift: self.max_drift });
        }
        Ok(self.advance(wall.max(received.successor())))
    }

    /// The highest reading, to be stored for [`resume`](Self::resume).
    pub fn latest(&self) -> Option<Hlc> {
        Some(self.latest.load(Relaxed)).filter(|bits| *bits != 0).map(Hlc)
    }

    fn advance(&self, at_least: Hlc) -> Hlc {
        let next = |latest| Hlc(latest).successor().max(at_least).to_bits();
        // Relaxed is enough: all writes to one atomic have one order, and no other memory depends on it.
        let previous = self.latest.fetch_update(Relaxed, Relaxed, |latest| Some(next(latest)));
        Hlc(next(previous.unwrap_or_else(|latest| latest)))
    }
}

/// A received reading is too far ahead of the wall clock to be merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the received reading {received} lies {ahead:?} ahead of this machine's {wall}; at most {max_drift:?} are allowed: \
     set both clocks right, or allow more drift"
)]
pub struct ClockDriftError {
    received: Hlc,
    wall: Hlc,
    ahead: Duration,
    max_drift: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{collections::BTreeSet, thread};

    fn at(millis: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
    }

    fn hlc(millis: u64, counter: u16) -> Hlc {
        Hlc(millis << COUNTER_BITS | u64::from(counter))
    }

    #[test]
    fn tick_takes_the_wall_clock_or_increments_the_counter() {
        let clock = HybridClock::resume(None);
        assert_eq!(clock.latest(), None);
        assert_eq!(clock.tick(at(1000)), hlc(1000, 0));
        assert_eq!(clock.tick(at(1000)), hlc(1000, 1));
        assert_eq!(clock.tick(at(400)), hlc(1000, 2), "the wall clock went back");
        assert_eq!(clock.tick(at(1001)), hlc(1001, 0));
        assert_eq!(clock.latest(), Some(hlc(1001, 0)));
    }

    #[test]
    fn full_counter_carries_into_the_next_millisecond() {
        let clock = HybridClock::resume(Some(hlc(1000, u16::MAX)));
        assert_eq!(clock.tick(at(1000)), hlc(1001, 0));
    }

    #[test]
    fn resume_continues_above_the_stored_reading() {
        let before = HybridClock::resume(None);
        before.tick(at(9000));
        let after = HybridClock::resume(before.latest());
        assert_eq!(after.tick(at(5000)), hlc(9000, 1));
    }

    #[test]
    fn merge_of_a_reading_too_far_ahead_is_rejected() {
        let clock = HybridClock::resume(None).with_max_drift(Duration::from_secs(1));
        let latest = clock.tick(at(1000));
        let refused = clock.merge(hlc(2001, 0), at(1000)).unwrap_err();
        insta::assert_snapshot!(refused, @"the received reading 000000000002001.00000 lies 1.001s ahead of this machine's 000000000001000.00000; at most 1s are allowed: set both clocks right, or allow more drift");
        assert_eq!(clock.latest(), Some(latest));
        assert_eq!(clock.merge(hlc(2000, 7), at(1000)), Ok(hlc(2000, 8)), "exactly at the limit");
    }

    #[test]
    fn extreme_times_do_not_panic() {
        let clock = HybridClock::resume(None);
        assert_eq!(clock.tick(SystemTime::UNIX_EPOCH - Duration::from_secs(1)), hlc(0, 1));
        clock.tick(at(1 << 60));
        assert_eq!(HybridClock::resume(Some(Hlc(u64::MAX))).tick(at(0)), Hlc(u64::MAX));
    }

    #[test]
    fn concurrent_ticks_are_distinct() {
        const THREADS: usize = 8;
        const TICKS: usize = 10_000;
        let clock = HybridClock::resume(None);
        let readings: BTreeSet<_> = thread::scope(|scope| {
            let ticking = || {
                let readings: Vec<_> = (0..TICKS).map(|_| clock.tick(at(1000))).collect();
                assert!(readings.is_sorted_by(|a, b| a < b));
                readings
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(ticking)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(readings.len(), THREADS * TICKS);
        assert_eq!(clock.latest(), readings.last().copied());
    }

    #[test]
    fn malformed_reading_is_rejected() {
        for text in [
            "",
            ".",
            "1.1",
            "001784021400123",
            "001784021400123.0007",
            "+01784021400123.00007",
            "281474976710656.00000",
            "001784021400123.65536",
            " 01784021400123.00007",
            "00178402140012٣.00007",
        ] {
            assert_eq!(text.parse::<Hlc>().unwrap_err().field(), "hlc", "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn readings_only_rise_and_follow_their_causes(
            steps in prop::collection::vec((any::<bool>(), 0..2_000_u64, any::<u16>()), 1..100),
        ) {
            let clock = HybridClock::resume(None);
            let mut latest = None;
            for (receives, millis, counter) in steps {
                let received = hlc(millis, counter);
                let reading = if receives {
                    let reading = clock.merge(received, at(1000)).unwrap();
                    prop_assert!(reading > received);
                    reading
                } else {
                    clock.tick(at(millis))
                };
                prop_assert!(Some(reading) > latest);
                latest = Some(reading);
                prop_assert_eq!(clock.latest(), latest);
            }
        }

        #[test]
        fn text_and_json_sort_and_round_trip(a: u64, b: u64) {
            let (a, b) = (Hlc::from_bits(a), Hlc::from_bits(b));
            prop_assert_eq!(a.to_string().parse(), Ok(a));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
            let json = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(serde_json::from_str::<Hlc>(&json).unwrap(), a);
        }

        #[test]
        fn parsing_never_panics(text: String) {
            let _ = text.parse::<Hlc>();
        }
    }
}
