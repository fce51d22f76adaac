//! Consumers and failures specific to PostgreSQL: failed transactions whose error was swallowed, terminated sessions.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/postgres.rs"]
mod support;

use consuming::OnMemoryQueue;
use postrider_core::{Arrival, ConsumerName, Error, InboxExt, Incoming, MessageId, RetryStrategy, TxBackend};
use postrider_engine::{Consumer, ConsumerBuilder, Context, Failure, Tx};
use postrider_testkit::{Fixture, TransactFixture};
use sqlx::{Postgres, Row, Transaction};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, SystemTime},
};
use support::PostgresFixture;

type HandlerTx = Tx<Transaction<'static, Postgres>>;

async fn world() -> OnMemoryQueue<PostgresFixture> {
    let world = OnMemoryQueue::new(PostgresFixture::new().await);
    let create = "create table effect (number bigint primary key check (number < 1000))";
    sqlx::query(create).execute(&world.store.app).await.unwrap();
    world
}

fn billing<R: TxBackend>(world: &OnMemoryQueue<PostgresFixture>, store: R) -> ConsumerBuilder<R> {
    let soon = RetryStrategy::constant(Duration::from_millis(10)).without_max_attempts();
    Consumer::builder("billing", world.queue.source(), store).retry(soon)
}

fn put(world: &OnMemoryQueue<PostgresFixture>, numbers: std::ops::Range<i64>) {
    for number in numbers {
        let mut order = Incoming::new("orders", number.to_string());
        order.id = Some(format!("order-{number}"));
        world.queue.put(order);
    }
}

async fn effects(world: &OnMemoryQueue<PostgresFixture>) -> i64 {
    let count = sqlx::query("select count(*) from effect").fetch_one(&world.store.app).await.unwrap();
    count.get(0)
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("timed out");
}

/// Writes its effect, and on the first delivery breaks its transaction and swallows the error.
async fn careless(number: i64, mut tx: HandlerTx, runs: Arc<AtomicUsize>) -> Result<(), Failure> {
    sqlx::query("insert into effect values ($1)").bind(number).execute(&mut **tx).await?;
    if runs.fetch_add(1, SeqCst) == 0 {
        // A "best effort" statement: from here on the transaction cannot commit.
        sqlx::query("insert into effect values (5000)").execute(&mut **tx).await.ok();
    }
    Ok(())
}

/// PostgreSQL replies to COMMIT with ROLLBACK, and the driver does not report it. The message must not be acked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_that_swallows_database_error_is_not_acked() {
    let world = world().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let consumer = billing(&world, world.store.transactions())
        .on_json(move |number: i64, tx: HandlerTx, _: Context| careless(number, tx, Arc::clone(&counted)))
        .build()
        .unwrap();
    put(&world, 0..1);
    let running = consumer.start();
    until(async || running.report().delivered == 1).await;
    let drained = running.stop(Duration::from_secs(60)).await;
    assert_eq!((drained.report.retried, runs.load(SeqCst)), (1, 2));
    assert_eq!((effects(&world).await, world.queue.left()), (1, 0));
}

/// The negative control, a naive loop: the commit seems to succeed, so the message would be acked, and its effect is lost.
#[tokio::test]
async fn control_trusting_commit_of_failed_transaction_loses_effect() {
    let world = world().await;
    let (inbox, billing) = (world.store.inbox(), ConsumerName::new("billing").unwrap());
    let arrival = Arrival::new(MessageId::at(SystemTime::now()));
    let mut tx = world.store.begin().await;
    let careless = async |tx: &mut Transaction<'static, Postgres>| {
        sqlx::query("insert into effect values (0)").execute(&mut **tx).await.unwrap();
        sqlx::query("insert into effect values (5000)").execute(&mut **tx).await.ok();
        Ok::<(), Error>(())
    };
    assert_eq!(inbox.once(&mut tx, &billing, arrival, careless).await.unwrap(), Some(()));
    tx.commit().await.unwrap();
    assert_eq!(effects(&world).await, 0);
}

/// The commit of such a message fails each time, because of a deferred constraint. It counts as a failure: the others are handled
/// beside it, more of them than the consumer has runners, and it ends as a dead letter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_whose_commit_always_fails_is_dead_lettered_and_stops_no_other() {
    let world = world().await;
    let create = "create table parent (id bigint primary key); \
        create table child (number bigint, parent bigint references parent deferrable initially deferred)";
    sqlx::raw_sql(create).execute(&world.store.app).await.unwrap();
    let consumer = billing(&world, world.store.transactions())
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
    put(&world, 0..30);
    let running = consumer.start();
    until(async || running.report().delivered == 20 && running.report().dead == 10).await;
    let drained = running.stop(Duration::from_secs(60)).await;
    assert_eq!(drained.report.retried, 30, "three attempts each: {drained:?}");
    assert_eq!((effects(&world).await, world.queue.left()), (20, 0));
}

/// Terminated sessions cost only time: messages in flight are retried, and no delivery is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_retries_after_sessions_are_terminated() {
    let world = world().await;
    let consumer = billing(&world, world.store.transactions())
        .max_deliveries(1)
        .batch_size(10)
        .retry_in_place(RetryStrategy::constant(Duration::from_millis(5)).without_max_attempts())
        .on_json(|number: i64, mut tx: HandlerTx, _: Context| async move {
            sqlx::query("insert into effect values ($1)").bind(number).execute(&mut **tx).await?;
            Ok::<(), Failure>(())
        })
        .build()
        .unwrap();
    put(&world, 0..500);
    let running = consumer.start();
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
        where datname = current_database() and pid <> pg_backend_pid()";
    let mut admin = sqlx::PgPool::connect(world.store.database.url()).await.unwrap();
    for _ in 0..10 {
        sqlx::query(end).fetch_one(&admin).await.unwrap();
        let before = running.report().delivered;
        until(async || running.report().delivered > before || running.report().delivered == 500).await;
        admin = sqlx::PgPool::connect(world.store.database.url()).await.unwrap();
    }
    until(async || running.report().delivered == 500).await;
    let drained = running.stop(Duration::from_secs(60)).await;
    assert_eq!((drained.report.retried, drained.report.dead), (0, 0));
    assert_eq!((effects(&world).await, world.queue.left()), (500, 0));
}
