//! The shop at one moment, and who takes the picture.

use super::{
    ledger::{Ledger, Percentiles},
    order::QUEUES,
    reasons::Reasons,
};
use crate::logs::Notes;
use postrider::{
    Reason,
    inspect::{Counts, Inspect, Tally},
    worker::Running,
};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep},
};

/// How often the store is asked what it holds.
const COUNTED_EVERY: Duration = Duration::from_millis(250);
/// Over how long "now" is measured.
const NOW: Duration = Duration::from_secs(1);

/// Everything that is shown, and nothing else.
#[derive(Debug, Clone)]
pub(super) struct Snapshot {
    pub(super) database: String,
    pub(super) elapsed: Duration,
    pub(super) lasts: Option<Duration>,
    pub(super) is_stopping: bool,
    pub(super) committed: u64,
    pub(super) abandoned: u64,
    pub(super) pending: Tally,
    pub(super) leased: Tally,
    pub(super) waiting: Tally,
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
pub(super) struct Camera {
    pub(super) database: String,
    pub(super) lasts: Option<Duration>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) reasons: Reasons,
    pub(super) notes: Notes,
    counts: watch::Receiver<Counts>,
    counting: JoinHandle<()>,
    began_at: Instant,
    /// What was done by when, over the last second.
    recent: VecDeque<(Instant, u64)>,
}

impl Camera {
    pub(super) fn new(
        store: impl Inspect,
        database: String,
        lasts: Option<Duration>,
        ledger: Arc<Ledger>,
        reasons: Reasons,
        notes: Notes,
    ) -> Self {
        let (sender, counts) = watch::channel(Counts::default());
        // On its own, so that a slow store does not stop the picture.
        let counting = tokio::spawn(async move {
            loop {
                match store.counts().await {
                    Ok(counts) => {
                        let ours = counts.iter().filter(|(queue, _)| QUEUES.contains(&queue.as_str()));
                        sender.send_replace(ours.fold(Counts::default(), |sum, (_, one)| add(sum, *one)));
                    }
                    Err(error) => tracing::warn!(%error, "the store does not say what it holds"),
                }
                sleep(COUNTED_EVERY).await;
            }
        });
        let began_at = Instant::now();
        let recent = VecDeque::from([(began_at, 0)]);
        Self { database, lasts, ledger, reasons, notes, counts, counting, began_at, recent }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.began_at.elapsed()
    }

    pub(super) fn take(&mut self, running: &Running, is_stopping: bool) -> Snapshot {
        let tally = running.tally();
        let counts = *self.counts.borrow();
        let elapsed = self.elapsed();
        Snapshot {
            database: self.database.clone(),
            elapsed,
            lasts: self.lasts,
            is_stopping,
            committed: self.ledger.committed_so_far(),
            abandoned: self.ledger.abandoned_so_far(),
            pending: counts.pending,
            leased: counts.leased,
            waiting: counts.waiting,
            done: tally.delivered,
            dead: tally.dead,
            reasons: self.reasons.counts(),
            retried: tally.retried,
            per_second: self.per_second(tally.delivered),
            per_second_on_average: rate(tally.delivered, elapsed),
            latency: self.ledger.latency(),
            notes: self.notes.lines(),
        }
    }

    fn per_second(&mut self, done: u64) -> f64 {
        let now = Instant::now();
        self.recent.push_back((now, done));
        while self.recent.get(1).is_some_and(|(at, _)| now - *at >= NOW) {
            self.recent.pop_front();
        }
        self.recent.front().map_or(0.0, |(at, before)| rate(done.saturating_sub(*before), now - *at))
    }
}

impl Drop for Camera {
    fn drop(&mut self) {
        self.counting.abort();
    }
}

/// How many a second; 0 while no time has passed.
pub(super) fn rate(count: u64, over: Duration) -> f64 {
    if over.is_zero() { 0.0 } else { count as f64 / over.as_secs_f64() }
}

fn add(one: Counts, other: Counts) -> Counts {
    let sum = |one: Tally, other: Tally| Tally {
        at_least: one.at_least.saturating_add(other.at_least),
        capped: one.capped || other.capped,
    };
    Counts {
        pending: sum(one.pending, other.pending),
        leased: sum(one.leased, other.leased),
        waiting: sum(one.waiting, other.waiting),
        dead: sum(one.dead, other.dead),
        done: sum(one.done, other.done),
    }
}
