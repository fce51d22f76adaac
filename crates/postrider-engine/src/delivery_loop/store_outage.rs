//! Logs an outage of the store once, and once when it is resolved.

use postrider_core::Error;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// Outages within this time of each other are logged as one.
const SAME_OUTAGE_WITHIN: Duration = Duration::from_secs(10);

/// The state of the store as one loop sees it. Tasks that fail together share one log line.
#[derive(Debug, Default)]
pub(crate) struct StoreOutage(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    failures: u64,
    logged_at: Option<Instant>,
    is_logged: bool,
}

impl StoreOutage {
    /// A store call failed. `what` completes the sentence "cannot …".
    pub(crate) fn report(&self, what: &'static str, error: &Error) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        state.since.get_or_insert(now);
        state.failures += 1;
        if !state.is_logged && state.logged_at.is_none_or(|at| now - at >= SAME_OUTAGE_WITHIN) {
            state.is_logged = true;
            state.logged_at = Some(now);
            tracing::warn!(name: "postrider.store_failed", what, %error, "store failed, cannot {what}: {error}; retrying with backoff");
        }
    }

    /// A store call succeeded.
    pub(crate) fn resolved(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(since) = state.since.take() else { return };
        let failures = std::mem::take(&mut state.failures);
        if std::mem::take(&mut state.is_logged) {
            let now = Instant::now();
            state.logged_at = Some(now);
            let lasted = now - since;
            tracing::info!(name: "postrider.store_recovered", failures, ?lasted, "store available again after {lasted:?} and {failures} failures");
        }
    }
}
