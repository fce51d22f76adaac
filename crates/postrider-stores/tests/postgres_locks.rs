//! Changes of queues and of the archive's partitions while other transactions are open: producers never wait for them.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    Error, Message, MessageId, OnFailure, OutboxExt, PruneRequest, QueueName, QueuePolicy, Store,
    schema::Schema,
};
use postrider_testkit::Fixture;
use sqlx::{AssertSqlSafe, Executor, Row};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};
use support::PostgresFixture;

const HOUR: Duration = Duration::from_secs(60 * 60);

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// Stages in every way, until `done` and at least once, in transactions that fail when a lock is not granted soon. A short lock
/// timeout of theirs proves that nobody blocks them: the change waits longer on the whole.
async fn stage_until(fixture: &PostgresFixture, done: &AtomicBool) {
    loop {
        let was_done = done.load(Ordering::Acquire);
        let mut tx = fixture.begin().await;
        tx.execute("set local lock_timeout = '1s'").await.unwrap();
        let plain = Message::builder("letters").payload("plain");
        fixture.outbox().stage(&mut tx, plain).await.unwrap();
        // An id that is given is looked for in the archive, too.
        let given = Message::builder("letters").payload("given").id(MessageId::at(SystemTime::now()));
        fixture.outbox().stage(&mut tx, given).await.unwrap();
        fixture
            .outbox()
            .stage(&mut tx, Message::builder("letters").payload("late").due_after(HOUR))
            .await
            .unwrap();
        fixture.commit(tx).await;
        if was_done {
            return;
        }
    }
}

/// Runs `change` while a producer stages on another queue.
async fn beside_producer<T>(fixture: &PostgresFixture, change: impl Future<Output = T>) -> T {
    let done = AtomicBool::new(false);
    let change = async {
        let changed = change.await;
        done.store(true, Ordering::Release);
        changed
    };
    tokio::join!(change, stage_until(fixture, &done)).0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn declaring_a_new_ordered_queue_waits_for_no_open_producer() {
    let fixture = PostgresFixture::new().await;
    let mut open = fixture.begin().await;
    fixture.outbox().stage(&mut open, Message::builder("orders").payload("open")).await.unwrap();
    let policy = QueuePolicy::by_key(OnFailure::Block);
    beside_producer(&fixture, fixture.store.declare(&queue("payments"), &policy)).await.unwrap();
    fixture.commit(open).await;
    let ordered = "select ordered from postrider.queue where name = 'payments'";
    assert!(sqlx::query(ordered).fetch_one(&fixture.app).await.unwrap().get::<bool, _>(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changing_the_ordering_beside_open_producer_fails_and_blocks_no_other_producer() {
    let fixture = PostgresFixture::new().await;
    let payments = queue("payments");
    fixture.store.declare(&payments, &QueuePolicy::default()).await.unwrap();
    let mut open = fixture.begin().await;
    fixture.outbox().stage(&mut open, Message::builder("orders").payload("open")).await.unwrap();
    let policy = QueuePolicy::by_key(OnFailure::Block);
    let refused = beside_producer(&fixture, fixture.store.declare(&payments, &policy)).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
    assert!(refused.to_string().contains("declare it again when they have ended"), "{refused}");
    fixture.commit(open).await;
    fixture.store.declare(&payments, &policy).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changing_the_ordering_succeeds_when_the_open_producer_ends() {
    let fixture = PostgresFixture::new().await;
    let payments = queue("payments");
    fixture.store.declare(&payments, &QueuePolicy::default()).await.unwrap();
    let mut open = fixture.begin().await;
    fixture.outbox().stage(&mut open, Message::builder("orders").payload("open")).await.unwrap();
    let policy = QueuePolicy::by_key(OnFailure::Block);
    let (store, name) = (fixture.store.clone(), payments.clone());
    let declaring = tokio::spawn(async move { store.declare(&name, &policy).await });
    fixture.database.somebody_waits().await;
    fixture.commit(open).await;
    declaring.await.unwrap().unwrap();
}

/// A long reader, such as a dump, holds the archive while a past day is to be dropped and coming days are to be created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_beside_a_reader_of_the_archive_deletes_rows_and_blocks_no_producer() {
    let fixture = PostgresFixture::new().await;
    fixture.store.declare(&queue("letters"), &QueuePolicy::default()).await.unwrap();
    let columns =
        "id, staged_at, due_at, expires_at, message_id, attempts, deliveries, queue, ordered, payload";
    let row = |expires: &str| {
        format!(
            "insert into postrider.archive ({columns}) \
             select 1, now(), now(), {expires}, gen_random_uuid(), 0, 1, 1, false, ''"
        )
    };
    let past = "create table postrider.archive_20200101 partition of postrider.archive \
                for values from ('2020-01-01') to ('2020-01-02')";
    for sql in [past.to_owned(), row("'2020-01-01 12:00+00'"), row("now() - interval '1 hour'")] {
        fixture.app.execute(AssertSqlSafe(sql)).await.unwrap();
    }
    fixture.run("analyze postrider.archive_20200101").await;
    let mut reader = fixture.begin().await;
    reader.execute("set transaction isolation level repeatable read").await.unwrap();
    reader.execute("select count(*) from postrider.archive").await.unwrap();

    let keep = QueuePolicy::default().with_keep_for(HOUR);
    beside_producer(&fixture, fixture.store.declare(&queue("orders"), &keep)).await.unwrap();
    let pruned = beside_producer(&fixture, fixture.store.prune(&PruneRequest::new())).await.unwrap();
    assert_eq!(pruned.archived, 1, "the row of the default partition");
    fixture.commit(reader).await;

    let pruned = fixture.store.prune(&PruneRequest::new()).await.unwrap();
    assert_eq!(pruned.archived, 1, "the row of the past day");
    let partitions = "select count(*) from pg_inherits where inhparent = 'postrider.archive'::regclass";
    let partitions: i64 = sqlx::query_scalar(partitions).fetch_one(&fixture.app).await.unwrap();
    assert_eq!(partitions, 4, "three days, and the rest");
    assert_eq!(fixture.store.validate().await.unwrap(), []);
}

/// The server compares a new partition with every row of the default one, while it holds the locks.
#[tokio::test]
async fn partition_is_not_created_beside_a_large_default_partition() {
    let fixture = PostgresFixture::new().await;
    fixture
        .run(
            "insert into postrider.archive (id, staged_at, due_at, expires_at, message_id, attempts, deliveries, queue, \
             ordered, payload) select n, now(), now(), now() + interval '10 days', gen_random_uuid(), 0, 1, 1, false, \
             decode(repeat('00', 1900), 'hex') from generate_series(1, 9000) n",
        )
        .await;
    fixture.store.declare(&queue("orders"), &QueuePolicy::default().with_keep_for(HOUR)).await.unwrap();
    let partitions = "select count(*) from pg_inherits where inhparent = 'postrider.archive'::regclass";
    let partitions: i64 = sqlx::query_scalar(partitions).fetch_one(&fixture.app).await.unwrap();
    assert_eq!(partitions, 1, "the rest");
}
