//! Timestamps as the tables store them: microseconds since 1970, by SQLite's clock.

use postrider_core::limits::FARTHEST_DUE;
use std::time::{Duration, SystemTime};

/// A time by the store's clock, in microseconds since 1970.
pub(super) type Micros = i64;

/// The due time of a parked key: it never comes.
pub(super) const NEVER: Micros = i64::MAX;

/// The time `by` after `now`, capped at the farthest time at which a message may be due.
pub(super) fn after(now: Micros, by: Duration) -> Micros {
    now.saturating_add(micros(by.min(FARTHEST_DUE)))
}

pub(super) fn micros(duration: Duration) -> Micros {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// The timestamp of a time, rounded up, so that nothing is due too early.
pub(super) fn from_system_time(time: SystemTime) -> Micros {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_nanos().div_ceil(1000)).unwrap_or(i64::MAX),
        Err(before) => -micros(before.duration()),
    }
}

pub(super) fn to_system_time(micros_since_epoch: Micros) -> SystemTime {
    let by = Duration::from_micros(micros_since_epoch.unsigned_abs());
    let time = if micros_since_epoch < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(by)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(by)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}
