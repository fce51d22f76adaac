//! Helpers of the worker suite.

pub(crate) use super::instrumented_store::{InstrumentedStore, StoreProbe};
use crate::Fixture;
pub(crate) use crate::store::helpers::*;
use postrider_core::{Backend, Event, Json, Message, RetryStrategy};
use postrider_engine::{Context, Failure, Queue, Report, Running, Worker, WorkerBuilder};
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, Mutex, atomic::AtomicUsize, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::{sync::Semaphore, time::sleep};

/// The event that most cases stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) number: u64,
}

impl Event for Order {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

/// Orders with numbers from 0.
pub(crate) fn orders(count: u64) -> Vec<Message> {
    (0..count).map(|number| Order { number }.message().build().unwrap()).collect()
}

/// Orders of one key with numbers from 0.
pub(crate) fn orders_of(key: &str, count: u64) -> Vec<Message> {
    (0..count).map(|number| Order { number }.message().key(key).build().unwrap()).collect()
}

/// The numbers of the orders that were handled, in the order in which their handlers ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<u64>>>);

impl Seen {
    pub(crate) fn note(&self, number: u64) {
        self.0.lock().unwrap().push(number);
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn sorted(&self) -> Vec<u64> {
        let mut numbers = self.numbers();
        numbers.sort_unstable();
        numbers
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// The queue of orders, with a handler that records them.
pub(crate) fn noting(seen: &Seen) -> Queue {
    let seen = seen.clone();
    Queue::new("orders").on(move |order: Order, _: Context| {
        seen.note(order.number);
        async { Ok::<(), Failure>(()) }
    })
}

/// The queue of orders, with a handler that returns a result by number.
pub(crate) fn deciding(decide: impl Fn(u64) -> Result<(), Failure> + Send + Sync + 'static) -> Queue {
    Queue::new("orders").on(move |order: Order, _: Context| {
        let result = decide(order.number);
        async move { result }
    })
}

/// Retries after five minutes, three attempts in total.
pub(crate) fn three_times() -> RetryStrategy {
    RetryStrategy::constant(minutes(5)).with_max_attempts(3)
}

/// The fixture's store, instrumented.
pub(crate) fn instrumented_store<F: Fixture>(fixture: &F) -> (Arc<dyn Backend>, Arc<StoreProbe>) {
    let probe = Arc::new(StoreProbe::default());
    (Arc::new(InstrumentedStore { store: fixture.store(), probe: Arc::clone(&probe) }), probe)
}

/// A worker on the fixture's store, instrumented.
pub(crate) fn instrumented_worker<F: Fixture>(fixture: &F) -> (WorkerBuilder, Arc<StoreProbe>) {
    let (store, probe) = instrumented_store(fixture);
    (Worker::builder_on(store), probe)
}

/// A worker on the fixture's store with one queue.
pub(crate) fn worker<F: Fixture>(fixture: &F, queue: Queue) -> Worker {
    Worker::builder_on(fixture.store()).queue(queue).build().unwrap()
}

/// Handles every due message.
pub(crate) async fn handle_all<F: Fixture>(fixture: &F, queue: Queue) -> Report {
    let report = worker(fixture, queue).run_until_idle().await.unwrap();
    assert_accounted_for(&report);
    report
}

/// Asserts that every claimed message was settled in one way.
pub(crate) fn assert_accounted_for(report: &Report) {
    let ended = report.delivered
        + report.retried
        + report.dead
        + report.released
        + report.unstarted
        + report.lost
        + report.in_flight;
    assert_eq!(report.claimed, ended, "{report:?}");
}

/// Waits until a condition holds, up to the time limit of the case.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until a runner has dead-lettered a message.
pub(crate) async fn until_dead_lettered(running: &Running) {
    while running.report().dead == 0 {
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until a counter is at least this large.
pub(crate) async fn at_least(count: &AtomicUsize, least: usize) {
    eventually(async || count.load(SeqCst) >= least).await;
}

/// A barrier that handlers wait at.
#[derive(Debug, Clone)]
pub(crate) struct Barrier {
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Barrier {
    pub(crate) fn closed() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), waiting: Arc::default() }
    }

    /// Waits until the barrier lets it pass.
    pub(crate) async fn pass(&self) {
        self.waiting.fetch_add(1, SeqCst);
        self.permits.acquire().await.unwrap().forget();
    }

    /// Lets this many handlers pass.
    pub(crate) fn open(&self, count: usize) {
        self.permits.add_permits(count);
    }

    /// Waits until this many handlers have arrived.
    pub(crate) async fn wait_for_arrivals(&self, count: usize) {
        at_least(&self.waiting, count).await;
    }

    pub(crate) fn arrivals(&self) -> usize {
        self.waiting.load(SeqCst)
    }
}
