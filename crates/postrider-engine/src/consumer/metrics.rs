//! The metrics of a consumer. `docs/observability.md` lists them, and a test compares the two.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use postrider_core::ConsumerName;
use std::{
    fmt,
    ops::Sub,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Counts of received messages, by outcome. A message counts once per delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerReport {
    /// Handled; their effects are committed.
    pub processed: u64,
    /// Duplicates: their effects happened before, and they were acked.
    pub duplicates: u64,
    /// Dead-lettered, undecodable ones included.
    pub dead_lettered: u64,
    /// Failed and nacked.
    pub failed: u64,
}

impl Sub for ConsumerReport {
    type Output = Self;

    /// The counts since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            processed: self.processed.saturating_sub(earlier.processed),
            duplicates: self.duplicates.saturating_sub(earlier.duplicates),
            dead_lettered: self.dead_lettered.saturating_sub(earlier.dead_lettered),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }
}

/// The metrics of one consumer. They are registered when it is built: install a recorder before.
pub(super) struct ConsumerMetrics {
    processed: DualCounter,
    duplicates: DualCounter,
    dead_lettered: DualCounter,
    failed: DualCounter,
    nacked: Counter,
    acks_lost: Counter,
    source_failures: Counter,
    in_flight: Gauge,
    batch_seconds: Histogram,
}

/// A counter of the recorder and one that this process can read.
struct DualCounter(Counter, AtomicU64);

impl DualCounter {
    fn add(&self, count: u64) {
        if count > 0 {
            self.0.increment(count);
            self.1.fetch_add(count, Relaxed);
        }
    }
}

impl ConsumerMetrics {
    pub(super) fn new(consumer: &ConsumerName) -> Self {
        let consumer = || ("consumer", consumer.to_string());
        let received = |outcome: &'static str| {
            DualCounter(
                counter!("postrider_received_total", &[consumer(), ("outcome", outcome.to_owned())]),
                AtomicU64::new(0),
            )
        };
        Self {
            processed: received("processed"),
            duplicates: received("duplicate"),
            dead_lettered: received("dead_lettered"),
            failed: received("failed"),
            nacked: counter!("postrider_consumer_nacked_total", &[consumer()]),
            acks_lost: counter!("postrider_consumer_acks_lost_total", &[consumer()]),
            source_failures: counter!("postrider_source_failures_total", &[consumer()]),
            in_flight: gauge!("postrider_consumer_in_flight", &[consumer()]),
            batch_seconds: histogram!("postrider_consumer_batch_seconds", &[consumer()]),
        }
    }

    pub(super) fn report(&self) -> ConsumerReport {
        let total = |dual: &DualCounter| dual.1.load(Relaxed);
        ConsumerReport {
            processed: total(&self.processed),
            duplicates: total(&self.duplicates),
            dead_lettered: total(&self.dead_lettered),
            failed: total(&self.failed),
        }
    }

    pub(super) fn add(&self, more: ConsumerReport) {
        self.processed.add(more.processed);
        self.duplicates.add(more.duplicates);
        self.dead_lettered.add(more.dead_lettered);
        self.failed.add(more.failed);
    }

    pub(super) fn record_nacked(&self, count: usize) {
        self.nacked.increment(count as u64);
    }

    pub(super) fn record_ack_lost(&self) {
        self.acks_lost.increment(1);
    }

    pub(super) fn record_source_failed(&self) {
        self.source_failures.increment(1);
    }

    pub(super) fn record_in_flight(&self, count: usize) {
        self.in_flight.set(count as f64);
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
