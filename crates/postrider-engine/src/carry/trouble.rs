//! Saying that the store fails, once, and once when it works again.

use postrider_core::Error;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// While trouble comes and goes more often than this, it is one story.
const ONE_STORY: Duration = Duration::from_secs(10);

/// The trouble of one carrier with its store. Loops that fail together tell it together.
#[derive(Debug, Default)]
pub(crate) struct Trouble(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    failures: u64,
    told_at: Option<Instant>,
    is_told: bool,
}

impl Trouble {
    /// Something failed while doing `what`.
    pub(crate) fn happened(&self, what: &'static str, error: &Error) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        state.since.get_or_insert(now);
        state.failures += 1;
        if !state.is_told && state.told_at.is_none_or(|at| now - at >= ONE_STORY) {
            state.is_told = true;
            state.told_at = Some(now);
            tracing::warn!(name: "postrider.store_failed", what, %error, "the store fails; trying again");
        }
    }

    /// Something worked.
    pub(crate) fn is_over(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(since) = state.since.take() else { return };
        let failures = std::mem::take(&mut state.failures);
        if std::mem::take(&mut state.is_told) {
            let now = Instant::now();
            state.told_at = Some(now);
            let lasted = now - since;
            tracing::info!(name: "postrider.store_works", failures, ?lasted, "the store works again");
        }
    }
}

/// Pauses between tries: they grow, and chance keeps processes apart.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(rand::random_range(0.5..1.5));
        self.next = (self.next * 2).min(self.longest);
        pause
    }
}
