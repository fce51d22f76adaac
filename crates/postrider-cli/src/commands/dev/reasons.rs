//! Dead letters by reason, as the engine counts them.

use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use postrider::Reason;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

const METRIC: &str = "postrider_dead_total";

/// Counts the one metric that the report of the worker lacks. It must be the recorder while the worker is built.
#[derive(Debug, Clone, Default)]
pub(super) struct Reasons([Arc<Count>; Reason::ALL.len()]);

#[derive(Debug, Default)]
struct Count(AtomicU64);

impl CounterFn for Count {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Relaxed);
    }
}

impl Reasons {
    /// The reasons with a count, in a fixed order.
    pub(super) fn counts(&self) -> Vec<(Reason, u64)> {
        let counts = Reason::ALL.into_iter().zip(&self.0);
        counts
            .map(|(reason, count)| (reason, count.0.load(Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

impl Recorder for Reasons {
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let reason = key.labels().find(|label| label.key() == "reason").map(metrics::Label::value);
        let mut counts = Reason::ALL.iter().zip(&self.0);
        match counts.find(|(known, _)| key.name() == METRIC && reason == Some(known.as_str())) {
            Some((_, count)) => Counter::from_arc(Arc::clone(count)),
            None => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }

    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
}
