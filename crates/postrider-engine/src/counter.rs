//! A counter of the metrics recorder that this process can read as well.

use metrics::Counter;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub(crate) struct ReadableCounter {
    recorded: Counter,
    total: AtomicU64,
}

impl ReadableCounter {
    pub(crate) fn new(recorded: Counter) -> Self {
        Self { recorded, total: AtomicU64::new(0) }
    }

    pub(crate) fn add(&self, count: u64) {
        if count > 0 {
            self.recorded.increment(count);
            self.total.fetch_add(count, Relaxed);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }
}
