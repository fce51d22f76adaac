//! What this process counts while the shop is open. What is true is in the tables.

use crate::words::time;
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
pub(super) struct Ledger {
    committed: AtomicU64,
    abandoned: Mutex<HashSet<MessageId>>,
    /// When the events that are under way may be handled, by this process's own clock.
    due: Mutex<HashMap<MessageId, Instant>>,
    /// In microseconds.
    latency: Mutex<Histogram<u64>>,
    began_at: Instant,
    first: OnceLock<Duration>,
}

/// How long it takes from the moment when an event may be handled until it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Percentiles {
    pub(super) p50: Duration,
    pub(super) p95: Duration,
    pub(super) p99: Duration,
}

/// Percentiles as people read them.
pub(super) fn percentiles(latency: Option<Percentiles>) -> String {
    match latency {
        None => "nothing yet".to_owned(),
        Some(Percentiles { p50, p95, p99 }) => {
            format!("p50 {} · p95 {} · p99 {}", time(p50), time(p95), time(p99))
        }
    }
}

impl Ledger {
    /// For a program that began at `began_at`.
    pub(super) fn new(began_at: Instant) -> Result<Self, hdrhistogram::CreationError> {
        Ok(Self {
            committed: AtomicU64::new(0),
            abandoned: Mutex::default(),
            due: Mutex::default(),
            latency: Mutex::new(Histogram::new(3)?),
            began_at,
            first: OnceLock::new(),
        })
    }

    /// An event is staged, and may be handled after so long if its transaction commits.
    pub(super) fn staged(&self, order: MessageId, waits_for: Duration) {
        lock(&self.due).insert(order, Instant::now() + waits_for);
    }

    pub(super) fn committed(&self) {
        self.committed.fetch_add(1, Relaxed);
    }

    pub(super) fn abandoned(&self, order: MessageId) {
        lock(&self.due).remove(&order);
        lock(&self.abandoned).insert(order);
    }

    /// Nobody knows what became of its transaction.
    pub(super) fn forget(&self, order: MessageId) {
        lock(&self.due).remove(&order);
    }

    /// An event was handled, whoever staged it.
    pub(super) fn handled(&self, order: MessageId) {
        self.first.get_or_init(|| self.began_at.elapsed());
        let Some(due) = lock(&self.due).remove(&order) else { return };
        let micros = u64::try_from(due.elapsed().as_micros()).unwrap_or(u64::MAX);
        // It grows as it needs to; what is too long even so is left out.
        let _ = lock(&self.latency).record(micros);
    }

    pub(super) fn committed_so_far(&self) -> u64 {
        self.committed.load(Relaxed)
    }

    pub(super) fn abandoned_so_far(&self) -> u64 {
        lock(&self.abandoned).len() as u64
    }

    pub(super) fn abandoned_orders(&self) -> HashSet<MessageId> {
        lock(&self.abandoned).clone()
    }

    /// How long it took until the first event was handled.
    pub(super) fn first(&self) -> Option<Duration> {
        self.first.get().copied()
    }

    /// `None` until something was handled.
    pub(super) fn latency(&self) -> Option<Percentiles> {
        let latency = lock(&self.latency);
        let at = |quantile| Duration::from_micros(latency.value_at_quantile(quantile));
        (!latency.is_empty()).then(|| Percentiles { p50: at(0.50), p95: at(0.95), p99: at(0.99) })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
