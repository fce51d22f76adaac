//! Relays, consumers and saga runners through virtual time.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use postrider_core::{
    Event, FollowUp, FollowUpExt, Incoming, Json, OutboxExt, PublishError, Reason, Reference, RetryStrategy,
};
use postrider_engine::{
    Consumer, Context, Destination, Failure, Relay, Route, SagaRunner, Tx,
    saga::{Resolution, Resolver, ResolverCall},
};
use postrider_stores::memory::MemoryTransaction;
use postrider_testing::{Assert, StoreCall, TestDestination, TestSource, TestStore};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

#[derive(Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    order: u64,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

const HOUR: Duration = Duration::from_secs(3600);

fn relay(store: &TestStore, billing: &TestDestination) -> Relay {
    let short = Duration::from_millis(1);
    Relay::builder(store.clone(), "/shop")
        .destination(Destination::new("billing", billing.clone()).circuit_backoff(short, short))
        .route(
            Route::new("orders")
                .to("billing", "orders")
                .retry(RetryStrategy::constant(HOUR).with_max_attempts(3)),
        )
        .build()
        .unwrap()
}

async fn stage(store: &TestStore, orders: std::ops::Range<u64>) {
    let mut tx = store.begin();
    for order in orders {
        store.stage(&mut tx, &OrderPlaced { order }).await.unwrap();
    }
    tx.commit();
}

#[tokio::test]
async fn relay_retries_on_the_virtual_clock() {
    let (store, billing) = (TestStore::new(), TestDestination::new());
    stage(&store, 0..3).await;
    billing.fail(1, || PublishError::retry("busy"));
    let start = store.now();
    let report = store.run_until_settled(&relay(&store, &billing)).await.unwrap();
    assert_eq!((report.delivered, report.retried), (3, 1));
    assert_eq!(store.now().duration_since(start).unwrap(), HOUR);
    let mut orders: Vec<u64> =
        billing.assert_published::<OrderPlaced>(3).into_iter().map(|placed| placed.order).collect();
    orders.sort_unstable();
    assert_eq!(orders, [0, 1, 2]);
    store.assert_empty().await;
}

#[tokio::test]
async fn relay_dead_letters_what_the_destination_rejects() {
    let (store, billing) = (TestStore::new(), TestDestination::new());
    stage(&store, 0..1).await;
    billing.fail(1, || PublishError::reject("forbidden"));
    store.run_until_settled(&relay(&store, &billing)).await.unwrap();
    assert_eq!(store.dead_letters().await[0].reason, Some(Reason::Rejected));
    billing.assert_published::<OrderPlaced>(0);
}

/// An outage counts no attempt, and its messages stay.
#[tokio::test]
async fn relay_keeps_messages_of_an_unavailable_destination() {
    let (store, billing) = (TestStore::new(), TestDestination::new());
    stage(&store, 0..1).await;
    billing.fail(1, || PublishError::unavailable("connection refused"));
    let relay = relay(&store, &billing);
    store.run_until_idle(&relay).await.unwrap();
    while billing.published().is_empty() {
        store.run_until_idle(&relay).await.unwrap();
    }
    assert_eq!(billing.assert_published::<OrderPlaced>(1), [OrderPlaced { order: 0 }]);
    store.assert_empty().await;
}

#[tokio::test]
#[should_panic(expected = "expected 2 published order.placed, found 1\npublished:\n  orders: order.placed")]
async fn assert_published_that_fails_shows_the_messages() {
    let (store, billing) = (TestStore::new(), TestDestination::new());
    stage(&store, 0..1).await;
    store.run_until_settled(&relay(&store, &billing)).await.unwrap();
    billing.assert_published::<OrderPlaced>(2);
}

/// Stages an order for each received one, and fails on the first delivery.
fn consumer(store: &TestStore, source: TestSource) -> Consumer<TestStore> {
    let outbox = store.clone();
    Consumer::builder("billing", source, store.clone())
        .on(move |placed: OrderPlaced, mut tx: Tx<MemoryTransaction>, context: Context| {
            let outbox = outbox.clone();
            async move {
                outbox.stage(&mut *tx, context.follow(placed.message())).await?;
                match context.deliveries() {
                    1 => Err(Failure::retry("not yet")),
                    _ => Ok(()),
                }
            }
        })
        .retry(RetryStrategy::constant(HOUR).without_max_attempts())
        .idle_after(Duration::from_millis(5))
        .build()
        .unwrap()
}

#[tokio::test]
async fn consumer_redelivers_on_the_virtual_clock() {
    let store = TestStore::new();
    let orders = store.source("orders");
    orders.put_message(&OrderPlaced { order: 17 }).unwrap();
    let consumer = consumer(&store, orders.clone());
    let start = store.now();
    let report = store.run_until_idle(&consumer).await.unwrap();
    assert_eq!((report.retried, report.delivered, orders.left()), (1, 0, 1));
    store.assert_empty().await;
    let report = store.run_until_settled(&consumer).await.unwrap();
    assert_eq!((report.delivered, orders.left()), (1, 0));
    assert_eq!(store.now().duration_since(start).unwrap(), HOUR);
    store.assert_staged::<OrderPlaced>(1).await;
}

#[tokio::test]
async fn consumer_rejects_a_message_without_an_identity() {
    let store = TestStore::new();
    let orders = store.source("orders");
    orders.put(Incoming::new("", "17"));
    let report = store.run_until_settled(&consumer(&store, orders.clone())).await.unwrap();
    assert_eq!((report.dead, orders.left(), orders.rejected().len()), (1, 0, 1));
}

/// The commit fails once: the effect happens once all the same.
#[tokio::test]
async fn consumer_survives_an_outage_of_the_store() {
    let store = TestStore::new();
    let orders = store.source("orders");
    orders.put_message(&OrderPlaced { order: 17 }).unwrap();
    store.advance(HOUR);
    store.fail(StoreCall::Commit, 1);
    let consumer = consumer(&store, orders.clone());
    store.run_until_settled(&consumer).await.unwrap();
    assert_eq!(orders.left(), 0);
    store.assert_staged::<OrderPlaced>(1).await;
}

/// Succeeds on the third call.
#[derive(Debug, Clone, Default)]
struct Mailer(Arc<AtomicU32>);

#[async_trait]
impl Resolver for Mailer {
    fn name(&self) -> &str {
        "mailer"
    }

    fn operations(&self) -> &[&str] {
        &["erase"]
    }

    async fn resolve(&self, _: &ResolverCall) -> Result<Resolution, Failure> {
        match self.0.fetch_add(1, SeqCst) {
            0 | 1 => Err(Failure::retry("busy")),
            _ => Ok(Resolution::Done),
        }
    }
}

#[tokio::test]
async fn saga_runner_retries_on_the_virtual_clock() {
    let store = TestStore::new();
    let mailer = Mailer::default();
    let mut tx = store.begin();
    let erase = FollowUp::new("customer-17", "mailer", "erase", Reference::new("contact", "c-99")).unwrap();
    store.follow_up(&mut tx, [erase]).await.unwrap();
    tx.commit();
    let runner = SagaRunner::builder(store.clone()).resolver(mailer.clone()).build().unwrap();
    let start = store.now();
    let report = store.run_until_settled(&runner).await.unwrap();
    assert_eq!((report.delivered, report.retried, mailer.0.load(SeqCst)), (1, 2, 3));
    assert!(store.now() > start, "the clock moved to the retries");
    store.assert_empty().await;
}
