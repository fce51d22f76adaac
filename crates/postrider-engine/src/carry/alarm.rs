//! What tells a fetcher to look again.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout},
};

/// Retries that come due within so long of each other are looked for together.
const TOGETHER: Duration = Duration::from_millis(10);
/// So many times are remembered; those farther ahead are found by polling.
const MOST_TIMES: usize = 4_096;

/// The alarm of one queue's fetcher. It rings for signals, for freed room and for retries that come due; a ring that nobody waits
/// for is kept for whoever waits next.
#[derive(Debug)]
pub(super) struct Alarm {
    bell: Notify,
    /// When retries that were settled here come due.
    times: Mutex<BTreeSet<Instant>>,
    /// Times are counted from here, so that they can be rounded.
    origin: Instant,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { bell: Notify::new(), times: Mutex::default(), origin: Instant::now() }
    }
}

impl Alarm {
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// A message comes due again after so long.
    pub(super) fn set(&self, after: Duration) {
        let since = self.origin.elapsed().saturating_add(after).as_nanos().div_ceil(TOGETHER.as_nanos());
        let since = u32::try_from(since).ok().and_then(|since| TOGETHER.checked_mul(since));
        let Some(at) = since.and_then(|since| self.origin.checked_add(since)) else { return };
        let is_next = {
            let mut times = self.times();
            let is_new = times.insert(at);
            if times.len() > MOST_TIMES {
                times.pop_last();
            }
            is_new && times.first() == Some(&at)
        };
        if is_next {
            // Whoever waits for longer waits anew.
            self.ring();
        }
    }

    /// Waits for a ring or for the next retry, at most so long.
    pub(super) async fn wait(&self, longest: Duration) {
        let next = self.times().first().map(|at| at.saturating_duration_since(Instant::now()));
        // Either way it is time to look.
        let _ = timeout(next.unwrap_or(longest).min(longest), self.bell.notified()).await;
        let mut times = self.times();
        let ahead = times.split_off(&(Instant::now() + Duration::from_nanos(1)));
        *times = ahead;
    }

    fn times(&self) -> MutexGuard<'_, BTreeSet<Instant>> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// Whatever rings in between, every retry is looked for once its time has come.
    #[tokio::test(start_paused = true)]
    async fn no_time_is_forgotten() {
        let alarm = Alarm::default();
        let begin = Instant::now();
        for after in [500, 100, 300, 101] {
            alarm.set(Duration::from_millis(after));
        }
        alarm.wait(HOUR).await;
        assert_eq!(begin.elapsed(), Duration::ZERO, "it rang for a new time");
        alarm.ring();
        alarm.wait(HOUR).await;
        let mut woken = Vec::new();
        for _ in 0..4 {
            alarm.wait(HOUR).await;
            woken.push(begin.elapsed().as_millis());
        }
        assert_eq!(woken, [100, 110, 300, 500]);
        alarm.wait(HOUR).await;
        assert_eq!(begin.elapsed(), HOUR + Duration::from_millis(500));
    }
}
