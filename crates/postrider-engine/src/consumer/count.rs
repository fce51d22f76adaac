//! What became of the messages, counted. `docs/observability.md` lists it, and a test compares.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use postrider_core::ConsumerName;
use std::{
    fmt,
    ops::Sub,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// What became of the messages that were received. One that comes several times counts each time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Consumed {
    /// Handled, with their effects committed.
    pub processed: u64,
    /// Had had their effects before, and were acknowledged.
    pub duplicates: u64,
    /// Kept as dead letters, unreadable ones among them.
    pub parked: u64,
    /// Failed, and were handed back.
    pub failed: u64,
}

impl Sub for Consumed {
    type Output = Self;

    /// What came since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            processed: self.processed.saturating_sub(earlier.processed),
            duplicates: self.duplicates.saturating_sub(earlier.duplicates),
            parked: self.parked.saturating_sub(earlier.parked),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }
}

/// The counters of one consumer. They are made with it: install a recorder before.
pub(super) struct Counts {
    processed: Counted,
    duplicates: Counted,
    parked: Counted,
    failed: Counted,
    handed_back: Counter,
    answers_lost: Counter,
    source_failures: Counter,
    in_hand: Gauge,
    handling: Histogram,
}

/// A counter for the recorder and one for ourselves.
struct Counted(Counter, AtomicU64);

impl Counted {
    fn add(&self, count: u64) {
        if count > 0 {
            self.0.increment(count);
            self.1.fetch_add(count, Relaxed);
        }
    }
}

impl Counts {
    pub(super) fn new(consumer: &ConsumerName) -> Self {
        let consumer = || ("consumer", consumer.to_string());
        let received = |outcome: &'static str| {
            Counted(
                counter!("postrider_received_total", &[consumer(), ("outcome", outcome.to_owned())]),
                AtomicU64::new(0),
            )
        };
        Self {
            processed: received("processed"),
            duplicates: received("duplicate"),
            parked: received("parked"),
            failed: received("failed"),
            handed_back: counter!("postrider_receive_handed_back_total", &[consumer()]),
            answers_lost: counter!("postrider_receive_answers_lost_total", &[consumer()]),
            source_failures: counter!("postrider_source_failures_total", &[consumer()]),
            in_hand: gauge!("postrider_receive_in_hand", &[consumer()]),
            handling: histogram!("postrider_receive_batch_seconds", &[consumer()]),
        }
    }

    pub(super) fn consumed(&self) -> Consumed {
        let total = |counted: &Counted| counted.1.load(Relaxed);
        Consumed {
            processed: total(&self.processed),
            duplicates: total(&self.duplicates),
            parked: total(&self.parked),
            failed: total(&self.failed),
        }
    }

    pub(super) fn add(&self, more: Consumed) {
        self.processed.add(more.processed);
        self.duplicates.add(more.duplicates);
        self.parked.add(more.parked);
        self.failed.add(more.failed);
    }

    pub(super) fn handed_back(&self, count: usize) {
        self.handed_back.increment(count as u64);
    }

    pub(super) fn answer_lost(&self) {
        self.answers_lost.increment(1);
    }

    pub(super) fn source_failed(&self) {
        self.source_failures.increment(1);
    }

    pub(super) fn in_hand(&self, count: usize) {
        self.in_hand.set(count as f64);
    }

    pub(super) fn handled(&self, took: Duration) {
        self.handling.record(took);
    }
}

impl fmt::Debug for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.consumed().fmt(f)
    }
}
