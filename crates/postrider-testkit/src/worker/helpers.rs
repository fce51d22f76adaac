//! What the cases of the worker suite say over and over.

pub(crate) use super::watched::{Watch, Watched};
use crate::Fixture;
pub(crate) use crate::store::helpers::*;
use postrider_core::{Event, Json, Message, RetryStrategy, Store, wake::Wake};
use postrider_engine::{Context, Failure, Queue, Tally, Worker, WorkerBuilder};
use serde::{Deserialize, Serialize};
use std::{
    sync::{Arc, Mutex, atomic::AtomicUsize, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::{sync::Semaphore, time::sleep};

/// What most cases stage.
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

/// The queue of orders, with a handler that notes them.
pub(crate) fn noting(seen: &Seen) -> Queue {
    let seen = seen.clone();
    Queue::new("orders").on(move |order: Order, _: Context| {
        seen.note(order.number);
        async { Ok::<(), Failure>(()) }
    })
}

/// The queue of orders, with a handler that decides by their number.
pub(crate) fn deciding(decide: impl Fn(u64) -> Result<(), Failure> + Send + Sync + 'static) -> Queue {
    Queue::new("orders").on(move |order: Order, _: Context| {
        let result = decide(order.number);
        async move { result }
    })
}

/// Tries again after five minutes, three times in all.
pub(crate) fn three_times() -> RetryStrategy {
    RetryStrategy::constant(minutes(5)).with_max_attempts(3)
}

/// The fixture's store, watched.
pub(crate) fn watched_store<F: Fixture>(fixture: &F) -> (Arc<dyn Store>, Arc<dyn Wake>, Arc<Watch>) {
    let watch = Arc::new(Watch::default());
    let watched =
        Arc::new(Watched { store: fixture.store(), wake: fixture.wake(), watch: Arc::clone(&watch) });
    (Arc::clone(&watched) as _, watched, watch)
}

/// A worker on the fixture's store, watched.
pub(crate) fn watched<F: Fixture>(fixture: &F) -> (WorkerBuilder, Arc<Watch>) {
    let (store, wake, watch) = watched_store(fixture);
    (Worker::builder_on(store, Some(wake)), watch)
}

/// A worker on the fixture's store with one queue.
pub(crate) fn worker<F: Fixture>(fixture: &F, queue: Queue) -> Worker {
    Worker::builder_on(fixture.store(), Some(fixture.wake())).queue(queue).build().unwrap()
}

/// Handles everything that is due.
pub(crate) async fn handle_all<F: Fixture>(fixture: &F, queue: Queue) -> Tally {
    let tally = worker(fixture, queue).run_until_idle().await.unwrap();
    assert_accounted_for(&tally);
    tally
}

/// Everything that was claimed ended in one way.
pub(crate) fn assert_accounted_for(tally: &Tally) {
    let ended = tally.delivered
        + tally.retried
        + tally.dead
        + tally.released
        + tally.handed_back
        + tally.lost
        + tally.in_hand;
    assert_eq!(tally.fetched, ended, "{tally:?}");
}

/// Waits until something holds. The limit of the case is the only one.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    while !holds().await {
        sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until a number is at least so large.
pub(crate) async fn at_least(count: &AtomicUsize, least: usize) {
    eventually(async || count.load(SeqCst) >= least).await;
}

/// A door that handlers wait at.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    permits: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Door {
    pub(crate) fn closed() -> Self {
        Self { permits: Arc::new(Semaphore::new(0)), waiting: Arc::default() }
    }

    /// Waits until it is opened.
    pub(crate) async fn pass(&self) {
        self.waiting.fetch_add(1, SeqCst);
        self.permits.acquire().await.unwrap().forget();
    }

    /// Lets so many through.
    pub(crate) fn open(&self, count: usize) {
        self.permits.add_permits(count);
    }

    /// Waits until so many have come.
    pub(crate) async fn waited_at_by(&self, count: usize) {
        at_least(&self.waiting, count).await;
    }

    pub(crate) fn visitors(&self) -> usize {
        self.waiting.load(SeqCst)
    }
}
