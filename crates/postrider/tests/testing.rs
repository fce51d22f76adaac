//! The assertions for users work on every store, and single handlers can be called without one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider::{
    Context, Event, Failure, Json, OutboxExt, Queue, Reason, Worker,
    schema::Schema,
    sqlite::SqliteStore,
    testing::{Assert, Next},
};

#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    order: u32,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

async fn ship(event: OrderPlaced, context: Context) -> Result<(), Failure> {
    if context.cancellation().is_cancelled() {
        return Err(Failure::retry("somebody else has it").named("Lost"));
    }
    match event.order {
        0 => Err(Failure::reject("no such order").named("NoSuchOrder")),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn assertions_work_in_a_database_of_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    let pool = sqlx::SqlitePool::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    for order in [0, 1, 2] {
        store.outbox().stage(&mut tx, &OrderPlaced { order }).await.unwrap();
    }
    tx.commit().await.unwrap();

    let staged = store.assert_staged::<OrderPlaced>(3).await;
    assert_eq!(staged, [0, 1, 2].map(|order| OrderPlaced { order }));
    store.assert_staged_in("orders", 3).await;

    let worker = Worker::builder(store.clone()).queue(Queue::new("orders").on(ship)).build().unwrap();
    worker.run_until_idle().await.unwrap();
    store.assert_not_staged::<OrderPlaced>().await;
    let letter = store.assert_dead::<OrderPlaced>(Reason::Rejected).await;
    assert_eq!(letter.error.as_deref(), Some("NoSuchOrder"));
}

#[tokio::test]
async fn a_single_handler_is_called_with_a_context_that_is_made_up() {
    assert!(Context::builder(&OrderPlaced { order: 1 }).perform(ship).await.is_ok());
    let refused = Context::builder(&OrderPlaced { order: 0 }).perform(ship).await.unwrap_err();
    assert_eq!((refused.next(), refused.kind()), (Next::Reject, "NoSuchOrder"));
    let lost = Context::builder(&OrderPlaced { order: 1 }).lost().perform(ship).await.unwrap_err();
    assert_eq!((lost.next(), lost.kind()), (Next::Retry, "Lost"));
    let unreadable = postrider::Message::builder("orders").payload("{");
    let unreadable = Context::builder(unreadable).perform(ship).await.unwrap_err();
    assert_eq!(unreadable.next(), Next::Undecodable);
    let no_queue = Context::builder(postrider::Message::builder("")).perform(ship).await.unwrap_err();
    assert_eq!(no_queue.next(), Next::Reject);
}

#[test]
fn a_context_that_is_made_up_says_what_it_was_told() {
    let event = OrderPlaced { order: 1 };
    let context = Context::builder(event.message().key("one")).attempt(3).share(17_u8).build().unwrap();
    assert_eq!((context.attempt(), context.deliveries()), (3, 3));
    assert_eq!(context.queue().as_str(), "orders");
    assert_eq!(context.message().id(), Some(context.id()));
    assert_eq!(context.shared::<u8>().unwrap(), &17);
    assert!(context.shared::<u16>().is_err());
}
