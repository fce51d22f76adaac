//! What is counted and measured. `docs/observability.md` lists it, and a test compares.
//!
//! Every `dispatched` is closed by exactly one of `delivered`, `retried`, `dead`, `released` and `lease_lost`, after the
//! store said so.

use super::tally::Tally;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use postrider_core::{QueueName, Reason, Settlement};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

/// The meters of one queue. They are made once, with the worker: install a recorder before.
pub(super) struct Meter {
    fetched: Counted,
    reclaimed: Counted,
    dispatched: Counted,
    delivered: Counted,
    forwarded: Counter,
    retried: Counted,
    dead: [Counter; Reason::ALL.len()],
    dead_total: AtomicU64,
    released: Counted,
    handed_back: Counted,
    lost: AtomicU64,
    lost_settling: Counter,
    lost_renewing: Counter,
    left: Counter,
    in_hand: AtomicU64,
    in_flight: Gauge,
    lag: Gauge,
    handling: Histogram,
    end_to_end: Histogram,
}

/// A counter for the recorder and one for ourselves.
struct Counted(Counter, AtomicU64);

impl Counted {
    fn add(&self, count: u64) {
        self.0.increment(count);
        self.1.fetch_add(count, Relaxed);
    }

    fn total(&self) -> u64 {
        self.1.load(Relaxed)
    }
}

/// When it was found out that a message belongs to somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Settle,
    Renew,
    /// It was not: it is left to its lease, because how it ended could not be written down.
    Left,
}

impl Meter {
    pub(super) fn new(queue: &QueueName) -> Self {
        let queue = || ("queue", queue.to_string());
        let counted = |counter: Counter| Counted(counter, AtomicU64::new(0));
        Self {
            fetched: counted(counter!("postrider_fetched_total", &[queue()])),
            reclaimed: counted(counter!("postrider_reclaimed_total", &[queue()])),
            dispatched: counted(counter!("postrider_dispatched_total", &[queue()])),
            delivered: counted(counter!("postrider_delivered_total", &[queue()])),
            forwarded: counter!("postrider_forwarded_total", &[queue()]),
            retried: counted(counter!("postrider_retried_total", &[queue()])),
            dead: Reason::ALL.map(|reason| {
                counter!("postrider_dead_total", &[queue(), ("reason", reason.as_str().to_owned())])
            }),
            dead_total: AtomicU64::new(0),
            released: counted(counter!("postrider_released_total", &[queue()])),
            handed_back: counted(counter!("postrider_handed_back_total", &[queue()])),
            lost: AtomicU64::new(0),
            lost_settling: counter!("postrider_lease_lost_total", &[queue(), ("phase", "settle".to_owned())]),
            lost_renewing: counter!("postrider_lease_lost_total", &[queue(), ("phase", "renew".to_owned())]),
            left: counter!("postrider_lease_lost_total", &[queue(), ("phase", "left".to_owned())]),
            in_hand: AtomicU64::new(0),
            in_flight: gauge!("postrider_in_flight", &[queue()]),
            lag: gauge!("postrider_queue_lag_seconds", &[queue()]),
            handling: histogram!("postrider_handle_seconds", &[queue()]),
            end_to_end: histogram!("postrider_end_to_end_seconds", &[queue()]),
        }
    }

    pub(super) fn fetched(&self, count: usize, oldest_due_at: Option<SystemTime>) {
        self.fetched.add(count as u64);
        let lag = oldest_due_at.and_then(|due_at| SystemTime::now().duration_since(due_at).ok());
        self.lag.set(lag.unwrap_or(Duration::ZERO).as_secs_f64());
        let before = self.in_hand.fetch_add(count as u64, Relaxed);
        self.in_flight.set((before + count as u64) as f64);
    }

    /// So many of them had been in somebody's hands whose lease lapsed.
    pub(super) fn reclaimed(&self, count: usize) {
        self.reclaimed.add(count as u64);
    }

    pub(super) fn dispatched(&self, count: usize) {
        self.dispatched.add(count as u64);
    }

    /// A delivery that ran was settled. `took` is how long that was after the message was staged.
    pub(super) fn settled(&self, settlement: &Settlement, ran_for: Duration, took: Option<Duration>) {
        match settlement {
            Settlement::Done | Settlement::Forward { .. } => {
                self.delivered.add(1);
                self.forwarded.increment(settlement.messages().len() as u64);
                if let Some(took) = took {
                    self.end_to_end.record(took.as_secs_f64());
                }
            }
            Settlement::Retry { .. } => self.retried.add(1),
            Settlement::Dead { reason, .. } => {
                for (known, counter) in Reason::ALL.iter().zip(&self.dead) {
                    if known == reason {
                        counter.increment(1);
                    }
                }
                self.dead_total.fetch_add(1, Relaxed);
            }
            Settlement::Release | Settlement::Snooze { .. } => self.released.add(1),
        }
        self.handling.record(ran_for.as_secs_f64());
        self.gone(1);
    }

    /// A message was handed back before anybody began with it.
    pub(super) fn handed_back(&self) {
        self.handed_back.add(1);
        self.gone(1);
    }

    pub(super) fn lost(&self, phase: Phase) {
        match phase {
            Phase::Settle => self.lost_settling.increment(1),
            Phase::Renew => self.lost_renewing.increment(1),
            Phase::Left => self.left.increment(1),
        }
        self.lost.fetch_add(1, Relaxed);
        self.gone(1);
    }

    fn gone(&self, count: u64) {
        let before = self.in_hand.fetch_sub(count, Relaxed);
        self.in_flight.set(before.saturating_sub(count) as f64);
    }

    pub(super) fn tally(&self) -> Tally {
        Tally {
            fetched: self.fetched.total(),
            reclaimed: self.reclaimed.total(),
            delivered: self.delivered.total(),
            retried: self.retried.total(),
            dead: self.dead_total.load(Relaxed),
            released: self.released.total(),
            handed_back: self.handed_back.total(),
            lost: self.lost.load(Relaxed),
            in_hand: self.in_hand.load(Relaxed),
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Meter").field(&self.tally()).finish()
    }
}
