//! The statistics of this process while the shop runs. The audit reads the tables instead.

use crate::format::time;
use hdrhistogram::Histogram;
use postrider::MessageId;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Stats {
    committed: AtomicU64,
    rolled_back: Mutex<HashSet<MessageId>>,
    /// When each unhandled event is due, by the clock of this process.
    due: Mutex<HashMap<MessageId, Instant>>,
    /// In microseconds.
    latency: Mutex<Histogram<u64>>,
    began_at: Instant,
    first: OnceLock<Duration>,
}

/// The latency from the due time of an event to its handler.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Percentiles {
    pub(super) p50: Duration,
    pub(super) p95: Duration,
    pub(super) p99: Duration,
}

/// The percentiles as text.
pub(super) fn percentiles(latency: Option<Percentiles>) -> String {
    match latency {
        None => "nothing yet".to_owned(),
        Some(Percentiles { p50, p95, p99 }) => {
            format!("p50 {} · p95 {} · p99 {}", time(p50), time(p95), time(p99))
        }
    }
}

impl Stats {
    /// Statistics of a program that started at `began_at`.
    pub(super) fn new(began_at: Instant) -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            committed: AtomicU64::new(0),
            rolled_back: Mutex::default(),
            due: Mutex::default(),
            latency: Mutex::new(Histogram::new(3)?),
            began_at,
            first: OnceLock::new(),
        })
    }

    /// Records a staged event that is due after `delay`, if its transaction commits.
    pub(super) fn staged(&self, order: MessageId, delay: Duration) {
        lock(&self.due).insert(order, Instant::now() + delay);
    }

    pub(super) fn committed(&self) {
        self.committed.fetch_add(1, Relaxed);
    }

    pub(super) fn rolled_back(&self, order: MessageId) {
        lock(&self.due).remove(&order);
        lock(&self.rolled_back).insert(order);
    }

    /// The outcome of the transaction is unknown.
    pub(super) fn forget(&self, order: MessageId) {
        lock(&self.due).remove(&order);
    }

    /// Records a handled event of any process.
    pub(super) fn handled(&self, order: MessageId) {
        self.first.get_or_init(|| self.began_at.elapsed());
        let Some(due) = lock(&self.due).remove(&order) else { return };
        let micros = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
        // The histogram resizes itself; a value beyond its limit is left out.
        let _ = lock(&self.latency).record(micros);
    }

    pub(super) fn committed_count(&self) -> u64 {
        self.committed.load(Relaxed)
    }

    pub(super) fn rolled_back_count(&self) -> u64 {
        lock(&self.rolled_back).len() as u64
    }

    pub(super) fn rolled_back_orders(&self) -> HashSet<MessageId> {
        lock(&self.rolled_back).clone()
    }

    /// The time from the start to the first handled event.
    pub(super) fn first(&self) -> Option<Duration> {
        self.first.get().copied()
    }

    /// `None` until an event was handled.
    pub(super) fn latency(&self) -> Option<Percentiles> {
        let latency = lock(&self.latency);
        let at = |quantile| Duration::from_micros(latency.value_at_quantile(quantile));
        (!latency.is_empty()).then(|| Percentiles { p50: at(0.50), p95: at(0.95), p99: at(0.99) })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
