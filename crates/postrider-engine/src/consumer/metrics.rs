//! The metrics of a consumer. `docs/observability.md` lists them, and a test compares the two.

use crate::{counter::ReadableCounter, runner::Report};
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use postrider_core::ConsumerName;
use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The metrics of one consumer. They are registered when it is built: install a recorder before.
pub(super) struct ConsumerMetrics {
    claimed: AtomicU64,
    delivered: ReadableCounter,
    duplicates: ReadableCounter,
    dead: ReadableCounter,
    retried: ReadableCounter,
    released: AtomicU64,
    unstarted: ReadableCounter,
    acks_lost: ReadableCounter,
    source_failures: Counter,
    in_flight: AtomicU64,
    in_flight_gauge: Gauge,
    batch_seconds: Histogram,
}

impl ConsumerMetrics {
    pub(super) fn new(consumer: &ConsumerName) -> Self {
        let consumer = || ("consumer", consumer.to_string());
        let received = |outcome: &'static str| {
            let labels = [consumer(), ("outcome", outcome.to_owned())];
            ReadableCounter::new(counter!("postrider_received_total", &labels))
        };
        Self {
            claimed: AtomicU64::new(0),
            delivered: received("processed"),
            duplicates: received("duplicate"),
            dead: received("dead_lettered"),
            retried: received("failed"),
            released: AtomicU64::new(0),
            unstarted: ReadableCounter::new(counter!("postrider_consumer_nacked_total", &[consumer()])),
            acks_lost: ReadableCounter::new(counter!("postrider_consumer_acks_lost_total", &[consumer()])),
            source_failures: counter!("postrider_source_failures_total", &[consumer()]),
            in_flight: AtomicU64::new(0),
            in_flight_gauge: gauge!("postrider_consumer_in_flight", &[consumer()]),
            batch_seconds: histogram!("postrider_consumer_batch_seconds", &[consumer()]),
        }
    }

    pub(super) fn report(&self) -> Report {
        Report {
            claimed: self.claimed.load(Relaxed),
            reclaimed: 0,
            delivered: self.delivered.total(),
            duplicates: self.duplicates.total(),
            retried: self.retried.total(),
            dead: self.dead.total(),
            released: self.released.load(Relaxed),
            unstarted: self.unstarted.total(),
            lost: self.acks_lost.total(),
            in_flight: self.in_flight.load(Relaxed),
        }
    }

    /// Messages have left a handler with these outcomes.
    pub(super) fn record_outcomes(&self, outcomes: Report) {
        self.delivered.add(outcomes.delivered);
        self.duplicates.add(outcomes.duplicates);
        self.dead.add(outcomes.dead);
        self.retried.add(outcomes.retried);
        self.released.fetch_add(outcomes.released, Relaxed);
    }

    pub(super) fn record_received(&self, count: usize) {
        self.claimed.fetch_add(count as u64, Relaxed);
    }

    pub(super) fn record_unstarted(&self, count: usize) {
        self.unstarted.add(count as u64);
    }

    pub(super) fn record_ack_lost(&self) {
        self.acks_lost.add(1);
    }

    pub(super) fn record_source_failed(&self) {
        self.source_failures.increment(1);
    }

    pub(super) fn record_in_flight(&self, count: usize) {
        self.in_flight.store(count as u64, Relaxed);
        self.in_flight_gauge.set(count as f64);
    }

    pub(super) fn record_handled(&self, took: Duration) {
        self.batch_seconds.record(took);
    }
}

impl fmt::Debug for ConsumerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}
