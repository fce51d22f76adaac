//! The wake-up of a claimer: notifications, freed capacity and due retries.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

/// Retries that come due within this time of each other cause one wake-up.
const COALESCE_WITHIN: Duration = Duration::from_millis(10);
/// The maximum number of due times that are kept; later ones are found by polling.
const MAX_DUE_TIMES: usize = 4_096;

/// The wake-up of one queue's claimer. It is notified by store notifications, freed capacity and retries that come due; a
/// notification without a waiter is kept for the next wait.
#[derive(Debug)]
pub(super) struct Wakeup {
    notify: Notify,
    /// When retries that were settled here come due.
    due_times: Mutex<BTreeSet<Instant>>,
    /// Times are counted from here, so that they can be rounded.
    origin: Instant,
}

impl Default for Wakeup {
    fn default() -> Self {
        Self { notify: Notify::new(), due_times: Mutex::default(), origin: Instant::now() }
    }
}

impl Wakeup {
    pub(super) fn notify(&self) {
        self.notify.notify_one();
    }

    /// A retry comes due after this delay.
    pub(super) fn schedule(&self, after: Duration) {
        let since =
            self.origin.elapsed().saturating_add(after).as_nanos().div_ceil(COALESCE_WITHIN.as_nanos());
        let since = u32::try_from(since).ok().and_then(|since| COALESCE_WITHIN.checked_mul(since));
        let Some(at) = since.and_then(|since| self.origin.checked_add(since)) else { return };
        let is_next = {
            let mut due_times = self.due_times();
            let is_new = due_times.insert(at);
            if due_times.len() > MAX_DUE_TIMES {
                due_times.pop_last();
            }
            is_new && due_times.first() == Some(&at)
        };
        if is_next {
            // A longer wait starts anew.
            self.notify();
        }
    }

    /// Waits for a notification or for the next due retry, at most `longest`.
    pub(super) async fn wait(&self, longest: Duration) {
        let next = self.due_times().first().map(|at| at.saturating_duration_since(Instant::now()));
        // Either way it is time to claim.
        let _ = timeout(next.unwrap_or(longest).min(longest), self.notify.notified()).await;
        let mut due_times = self.due_times();
        let ahead = due_times.split_off(&(Instant::now() + Duration::from_nanos(1)));
        *due_times = ahead;
    }

    fn due_times(&self) -> MutexGuard<'_, BTreeSet<Instant>> {
        self.due_times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Whatever notifies in between, every due retry causes a wake-up.
    #[tokio::test(start_paused = true)]
    async fn every_scheduled_time_causes_a_wakeup() {
        let wakeup = Wakeup::default();
        let begin = Instant::now();
        for after in [500, 100, 300, 101] {
            wakeup.schedule(Duration::from_millis(after));
        }
        wakeup.wait(HOUR).await;
        assert_eq!(begin.elapsed(), Duration::ZERO, "a new earliest time notifies");
        wakeup.notify();
        wakeup.wait(HOUR).await;
        let mut woken = Vec::new();
        for _ in 0..4 {
            wakeup.wait(HOUR).await;
            woken.push(begin.elapsed().as_millis());
        }
        assert_eq!(woken, [100, 110, 300, 500]);
        wakeup.wait(HOUR).await;
        assert_eq!(begin.elapsed(), HOUR + Duration::from_millis(500));
    }
}
