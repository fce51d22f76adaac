//! What tells a fetcher to look again.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

/// The alarm of one queue's fetcher. It rings for signals, for freed room and for retries that come due; a ring that nobody waits
/// for is kept for whoever waits next.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    bell: Notify,
    /// When the next retry that was settled here comes due.
    retry_at: Mutex<Option<Instant>>,
}

/// A retry is looked for no sooner than this after having found nothing: the store's clock may be behind.
const LEAST: Duration = Duration::from_millis(1);

impl Alarm {
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// A message comes due again after so long.
    pub(super) fn set(&self, after: Duration) {
        let Some(at) = Instant::now().checked_add(after) else { return };
        {
            let mut retry_at = self.retry_at.lock().unwrap_or_else(PoisonError::into_inner);
            if retry_at.is_some_and(|earlier| earlier <= at) {
                return;
            }
            *retry_at = Some(at);
        }
        // Whoever waits for longer waits anew.
        self.ring();
    }

    /// Waits for a ring or for the next retry, at most so long.
    pub(super) async fn wait(&self, longest: Duration) {
        let longest = {
            let mut retry_at = self.retry_at.lock().unwrap_or_else(PoisonError::into_inner);
            let until_retry = retry_at.map(|at| at.saturating_duration_since(Instant::now()));
            // Kept until it has passed: whatever rings before must not make us forget it.
            if until_retry == Some(Duration::ZERO) {
                *retry_at = None;
            }
            until_retry.map_or(longest, |wait| wait.max(LEAST).min(longest))
        };
        // Either way it is time to look.
        let _ = timeout(longest, self.bell.notified()).await;
    }
}
