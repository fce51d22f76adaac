//! A snapshot of the shop, and the sampler that takes it.

use super::{
    order::QUEUES,
    reasons::Reasons,
    stats::{Percentiles, Stats},
};
use crate::logs::Notes;
use postrider::{
    Reason, Running,
    inspect::{CappedCount, Counts, Inspect},
};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

/// The interval between two counts of the store.
const COUNT_INTERVAL: Duration = Duration::from_millis(250);
/// The window of the current throughput.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// The values that are shown.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) database: String,
    pub(super) elapsed: Duration,
    pub(super) duration: Option<Duration>,
    pub(super) is_stopping: bool,
    pub(super) committed: u64,
    pub(super) rolled_back: u64,
    pub(super) pending: CappedCount,
    pub(super) leased: CappedCount,
    pub(super) scheduled: CappedCount,
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) reasons: Vec<(Reason, u64)>,
    pub(super) retried: u64,
    pub(super) per_second: f64,
    pub(super) per_second_on_average: f64,
    pub(super) latency: Option<Percentiles>,
    pub(super) notes: Vec<String>,
}

/// Takes snapshots.
#[derive(Debug)]
pub(super) struct Sampler {
    pub(super) database: String,
    pub(super) duration: Option<Duration>,
    pub(super) stats: Arc<Stats>,
    pub(super) reasons: Reasons,
    pub(super) notes: Notes,
    counts: watch::Receiver<Counts>,
    counting: JoinHandle<()>,
    began_at: Instant,
    /// The number of handled events at each sample of the last second.
    recent: VecDeque<(Instant, u64)>,
}

impl Sampler {
    pub(super) fn new(
        store: impl Inspect,
        database: String,
        duration: Option<Duration>,
        stats: Arc<Stats>,
        reasons: Reasons,
        notes: Notes,
    ) -> Self {
        let (sender, counts) = watch::channel(Counts::default());
        // In a task of its own, so that a slow store does not stop the screen.
        let counting = tokio::spawn(async move {
            loop {
                match store.counts().await {
                    Ok(counts) => {
                        let ours = counts.iter().filter(|(queue, _)| QUEUES.contains(&queue.as_str()));
                        sender.send_replace(ours.fold(Counts::default(), |sum, (_, one)| add(sum, *one)));
                    }
                    Err(error) => tracing::warn!(%error, "cannot count the messages in the store"),
                }
                sleep(COUNT_INTERVAL).await;
            }
        });
        let began_at = Instant::now();
        let recent = VecDeque::from([(began_at, 0)]);
        Self { database, duration, stats, reasons, notes, counts, counting, began_at, recent }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began_at.elapsed()
    }

    pub(super) fn take(&mut self, running: &Running, is_stopping: bool) -> Snapshot {
        let tally = running.report();
        let counts = *self.counts.borrow();
        let elapsed = self.elapsed();
        Snapshot {
            database: self.database.clone(),
            elapsed,
            duration: self.duration,
            is_stopping,
            committed: self.stats.committed_count(),
            rolled_back: self.stats.rolled_back_count(),
            pending: counts.pending,
            leased: counts.leased,
            scheduled: counts.scheduled,
            done: tally.delivered,
            dead: tally.dead,
            reasons: self.reasons.counts(),
            retried: tally.retried,
            per_second: self.per_second(tally.delivered),
            per_second_on_average: rate(tally.delivered, elapsed),
            latency: self.stats.latency(),
            notes: self.notes.lines(),
        }
    }

    fn per_second(&mut self, done: u64) -> f64 {
        let now = Instant::now();
        self.recent.push_back((now, done));
        while self.recent.get(1).is_some_and(|(at, _)| now - *at >= RATE_WINDOW) {
            self.recent.pop_front();
        }
        self.recent.front().map_or(0.0, |(at, before)| rate(done.saturating_sub(*before), now - *at))
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.counting.abort();
    }
}

/// The rate per second; 0 when no time has passed.
pub(super) fn rate(count: u64, over: Duration) -> f64 {
    if over.is_zero() { 0.0 } else { count as f64 / over.as_secs_f64() }
}

fn add(one: Counts, other: Counts) -> Counts {
    let sum = |one: CappedCount, other: CappedCount| CappedCount {
        at_least: one.at_least.saturating_add(other.at_least),
        capped: one.capped || other.capped,
    };
    Counts {
        pending: sum(one.pending, other.pending),
        leased: sum(one.leased, other.leased),
        scheduled: sum(one.scheduled, other.scheduled),
        dead: sum(one.dead, other.dead),
        done: sum(one.done, other.done),
    }
}
