//! The store's time.

use postrider_core::limits::FARTHEST_DUE;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

/// A clock that stands still until it is moved. Clones are hands on the same clock, so several stores can share one.
#[derive(Debug, Clone)]
pub struct ManualClock {
    now: Arc<Mutex<SystemTime>>,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn at(now: SystemTime) -> Self {
        Self { now: Arc::new(Mutex::new(now)) }
    }

    /// What it shows.
    pub fn now(&self) -> SystemTime {
        *self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves it ahead.
    pub fn advance(&self, by: Duration) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        *now = after(*now, by);
    }
}

/// What a store goes by.
#[derive(Debug)]
pub(super) enum Clock {
    /// The wall clock, and how far the store's time was moved ahead of it.
    Wall { ahead: Mutex<Duration> },
    /// A clock that somebody else moves too.
    Manual(ManualClock),
}

impl Default for Clock {
    fn default() -> Self {
        Self::Wall { ahead: Mutex::default() }
    }
}

impl Clock {
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

/// The moment `by` after `now`. What lies farther ahead than a message may be due is as good as never.
pub(super) fn after(now: SystemTime, by: Duration) -> SystemTime {
    now.checked_add(by.min(FARTHEST_DUE)).unwrap_or(now)
}
