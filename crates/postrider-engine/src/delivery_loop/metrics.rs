//! The metrics of a queue. `docs/observability.md` lists them, and a test compares the two.
//!
//! Every dispatched message ends in exactly one of `delivered`, `retried`, `dead`, `released` and `lease_lost`, after the store
//! confirmed it.

use crate::{counter::ReadableCounter, runner::Report};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use postrider_core::{QueueName, Reason, Settlement};
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

/// The metrics of one queue. They are registered when the worker is built: install a recorder before.
pub(super) struct QueueMetrics {
    claimed: ReadableCounter,
    reclaimed: ReadableCounter,
    dispatched: ReadableCounter,
    delivered: ReadableCounter,
    forwarded: Counter,
    retried: ReadableCounter,
    dead: [Counter; Reason::ALL.len()],
    dead_total: AtomicU64,
    released: ReadableCounter,
    unstarted: ReadableCounter,
    lost: AtomicU64,
    lost_settling: Counter,
    lost_renewing: Counter,
    left_to_lease: Counter,
    in_flight: AtomicU64,
    in_flight_gauge: Gauge,
    claim_age: Gauge,
    handle_seconds: Histogram,
    end_to_end: Histogram,
}

/// When the loss of a lease was detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Settle,
    Renew,
    /// The lease was not lost: the outcome could not be recorded, and the message waits until its lease expires.
    LeftToLease,
}

impl QueueMetrics {
    pub(super) fn new(queue: &QueueName) -> Self {
        let queue = || ("queue", queue.to_string());
        Self {
            claimed: ReadableCounter::new(counter!("postrider_claimed_total", &[queue()])),
            reclaimed: ReadableCounter::new(counter!("postrider_reclaimed_total", &[queue()])),
            dispatched: ReadableCounter::new(counter!("postrider_dispatched_total", &[queue()])),
            delivered: ReadableCounter::new(counter!("postrider_delivered_total", &[queue()])),
            forwarded: counter!("postrider_forwarded_total", &[queue()]),
            retried: ReadableCounter::new(counter!("postrider_retried_total", &[queue()])),
            dead: Reason::ALL.map(|reason| {
                counter!("postrider_dead_total", &[queue(), ("reason", reason.as_str().to_owned())])
            }),
            dead_total: AtomicU64::new(0),
            released: ReadableCounter::new(counter!("postrider_released_total", &[queue()])),
            unstarted: ReadableCounter::new(counter!("postrider_unstarted_total", &[queue()])),
            lost: AtomicU64::new(0),
            lost_settling: counter!("postrider_lease_lost_total", &[queue(), ("phase", "settle".to_owned())]),
            lost_renewing: counter!("postrider_lease_lost_total", &[queue(), ("phase", "renew".to_owned())]),
            left_to_lease: counter!(
                "postrider_lease_lost_total",
                &[queue(), ("phase", "not_recorded".to_owned())]
            ),
            in_flight: AtomicU64::new(0),
            in_flight_gauge: gauge!("postrider_in_flight", &[queue()]),
            claim_age: gauge!("postrider_claim_age_seconds", &[queue()]),
            handle_seconds: histogram!("postrider_handle_seconds", &[queue()]),
            end_to_end: histogram!("postrider_end_to_end_seconds", &[queue()]),
        }
    }

    pub(super) fn record_claimed(&self, count: usize, oldest_due_at: Option<SystemTime>) {
        self.claimed.add(count as u64);
        let claim_age = oldest_due_at.and_then(|due_at| SystemTime::now().duration_since(due_at).ok());
        self.claim_age.set(claim_age.unwrap_or(Duration::ZERO).as_secs_f64());
        let before = self.in_flight.fetch_add(count as u64, Relaxed);
        self.in_flight_gauge.set((before + count as u64) as f64);
    }

    /// `count` of the claimed messages were in flight at a worker whose lease expired.
    pub(super) fn record_reclaimed(&self, count: usize) {
        self.reclaimed.add(count as u64);
    }

    pub(super) fn record_dispatched(&self, count: usize) {
        self.dispatched.add(count as u64);
    }

    /// A delivery that ran was settled. `took` is the time since the message was staged.
    pub(super) fn record_settled(&self, settlement: &Settlement, ran_for: Duration, took: Option<Duration>) {
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
        self.handle_seconds.record(ran_for.as_secs_f64());
        self.leave_flight(1);
    }

    /// A message was released before its delivery started.
    pub(super) fn record_unstarted(&self) {
        self.unstarted.add(1);
        self.leave_flight(1);
    }

    pub(super) fn record_lost(&self, phase: Phase) {
        match phase {
            Phase::Settle => self.lost_settling.increment(1),
            Phase::Renew => self.lost_renewing.increment(1),
            Phase::LeftToLease => self.left_to_lease.increment(1),
        }
        self.lost.fetch_add(1, Relaxed);
        self.leave_flight(1);
    }

    fn leave_flight(&self, count: u64) {
        let before = self.in_flight.fetch_sub(count, Relaxed);
        self.in_flight_gauge.set(before.saturating_sub(count) as f64);
    }

    pub(super) fn report(&self) -> Report {
        Report {
            claimed: self.claimed.total(),
            reclaimed: self.reclaimed.total(),
            delivered: self.delivered.total(),
            duplicates: 0,
            retried: self.retried.total(),
            dead: self.dead_total.load(Relaxed),
            released: self.released.total(),
            unstarted: self.unstarted.total(),
            lost: self.lost.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
        }
    }
}

impl fmt::Debug for QueueMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QueueMetrics").field(&self.report()).finish()
    }
}
