//! The store's time.

use postrider_core::limits::FARTHEST_DUE;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

/// A clock that only moves when it is told to, for tests. Clones share one time, so several stores can share a clock.
#[derive(Debug, Clone)]
pub struct ManualClock {
    now: Arc<Mutex<SystemTime>>,
}

impl ManualClock {
    /// A clock that is set to `now`.
    pub fn at(now: SystemTime) -> Self {
        Self { now: Arc::new(Mutex::new(now)) }
    }

    /// The current time of the clock.
    pub fn now(&self) -> SystemTime {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = after(*now, by);
    }
}

/// The clock of a store.
#[derive(Debug)]
pub(super) enum StoreClock {
    /// The wall clock, and how far the store's time is ahead of it.
    Wall { ahead: Mutex<Duration> },
    /// A clock that the test moves.
    Manual(ManualClock),
}

impl Default for StoreClock {
    fn default() -> Self {
        Self::Wall { ahead: Mutex::default() }
    }
}

impl StoreClock {
    pub(super) fn now(&self) -> SystemTime {
        match self {
            Self::Wall { ahead } => {
                after(SystemTime::now(), *ahead.lock().unwrap_or_else(PoisonError::into_inner))
            }
            Self::Manual(clock) => clock.now(),
        }
    }

    pub(super) fn advance(&self, by: Duration) {
        match self {
            Self::Wall { ahead } => {
                let mut ahead = ahead.lock().unwrap_or_else(PoisonError::into_inner);
                *ahead = ahead.saturating_add(by);
            }
            Self::Manual(clock) => clock.advance(by),
        }
    }
}

/// The time `by` after `now`, capped at the farthest time at which a message may be due.
pub(super) fn after(now: SystemTime, by: Duration) -> SystemTime {
    now.checked_add(by.min(FARTHEST_DUE)).unwrap_or(now)
}
