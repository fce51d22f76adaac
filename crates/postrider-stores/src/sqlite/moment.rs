//! Times as the tables keep them: microseconds since 1970, by SQLite's clock.

use postrider_core::limits::FARTHEST_DUE;
use std::time::{Duration, SystemTime};

/// A moment by the store's clock.
pub(super) type Micros = i64;

/// The time at which nothing ever happens: a key that is parked.
pub(super) const NEVER: Micros = i64::MAX;

/// The moment `by` after `now`. What lies farther ahead than a message may be due is as good as never.
pub(super) fn after(now: Micros, by: Duration) -> Micros {
    now.saturating_add(micros(by.min(FARTHEST_DUE)))
}

pub(super) fn micros(duration: Duration) -> Micros {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The moment of a time, rounded up, so that nothing is due before it.
pub(super) fn of(time: SystemTime) -> Micros {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX),
        Err(before) => -micros(before.duration()),
    }
}

pub(super) fn time(moment: Micros) -> SystemTime {
    let by = Duration::from_micros(moment.unsigned_abs());
    let time = if moment < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(by)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(by)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}
