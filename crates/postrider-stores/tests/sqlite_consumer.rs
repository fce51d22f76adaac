//! Consumers and failures specific to SQLite: a commit that always fails.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/sqlite.rs"]
mod support;

use consuming::OnMemoryQueue;
use postrider_core::{Incoming, RetryStrategy};
use postrider_engine::{Consumer, Context, Failure, Tx};
use postrider_testkit::TransactFixture;
use sqlx::{Sqlite, Transaction};
use std::time::Duration;
use support::SqliteFixture;

type HandlerTx = Tx<Transaction<'static, Sqlite>>;

/// The commit of such a message fails each time, because of a deferred foreign key. It counts as a failure: the others are handled
/// beside it, more of them than the consumer has runners, and it ends as a dead letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_whose_commit_always_fails_is_dead_lettered_and_stops_no_other() {
    let world = OnMemoryQueue::new(SqliteFixture::new().await);
    world
        .store
        .run(
            "create table effect (number integer primary key); create table parent (id integer primary key); \
             create table child (number integer, parent integer references parent deferrable initially deferred)",
        )
        .await;
    let soon = RetryStrategy::constant(Duration::from_millis(10)).without_max_attempts();
    let consumer = Consumer::builder("billing", world.queue.source(), world.store.transactions())
        .retry(soon)
        .max_deliveries(3)
        .concurrency(2)
        .batch_size(4)
        .on_json(|number: i64, mut tx: HandlerTx, _: Context| async move {
            sqlx::query("insert into effect values ($1)").bind(number).execute(&mut **tx).await?;
            if number < 10 {
                sqlx::query("insert into child values ($1, 1)").bind(number).execute(&mut **tx).await?;
            }
            Ok::<(), Failure>(())
        })
        .build()
        .unwrap();
    for number in 0..30 {
        let mut order = Incoming::new("orders", number.to_string());
        order.id = Some(format!("order-{number}"));
        world.queue.put(order);
    }
    let running = consumer.start();
    let ended = async {
        while running.report().delivered < 20 || running.report().dead < 10 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.expect("timed out");
    let drained = running.stop(Duration::from_secs(60)).await;
    assert_eq!(drained.report.retried, 30, "three attempts each: {drained:?}");
    let effects: i64 =
        sqlx::query_scalar("select count(*) from effect").fetch_one(&world.store.app).await.unwrap();
    assert_eq!((effects, world.queue.left()), (20, 0));
}
