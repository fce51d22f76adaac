//! Transactions of the application that hold rows, and what they hold up: at most their own messages.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    ClaimRequest, Message, MessageId, Outbox, OutboxExt, QueueName, StageOutcome, TimerName,
};
use postrider_engine::{Context, Failure, Queue, Worker};
use postrider_testkit::Fixture;
use sqlx::Executor;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use support::PostgresFixture;
use tokio::sync::Semaphore;

type Tx = <PostgresFixture as Fixture>::Tx;

async fn stage(fixture: &PostgresFixture, batch: &[Message]) {
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, batch).await.unwrap();
    fixture.commit(tx).await;
}

/// This many messages, and a named timer that is due among them.
async fn stage_orders(fixture: &PostgresFixture, count: usize) {
    let timer = Message::builder("orders").payload("timer").extending_timer("t1").build().unwrap();
    let orders = (0..count).map(|_| Message::builder("orders").payload("order").build().unwrap());
    stage(fixture, &orders.chain([timer]).collect::<Vec<_>>()).await;
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("timed out");
}

/// A worker whose handlers wait for permits.
fn worker(fixture: &PostgresFixture, gate: &Arc<Semaphore>) -> Worker {
    let gate = Arc::clone(gate);
    let queue = Queue::new("orders").concurrency(100).on_any(move |_: Context| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await?.forget();
            Ok::<(), Failure>(())
        }
    });
    Worker::builder_on(fixture.store()).queue(queue).build().unwrap()
}

/// A producer finds that the timer which it wants to cancel or extend is in flight, and keeps its transaction open. It has changed
/// nothing, so it holds up nothing.
async fn open_producer_blocks_no_settlement(act: impl AsyncFnOnce(&PostgresFixture, &mut Tx)) {
    let fixture = PostgresFixture::new().await;
    let gate = Arc::new(Semaphore::new(0));
    stage_orders(&fixture, 99).await;
    let running = worker(&fixture, &gate).start();
    until(async || running.report().claimed == 100).await;
    let mut tx = fixture.begin().await;
    act(&fixture, &mut tx).await;
    gate.add_permits(100);
    until(async || running.report().delivered == 100).await;
    fixture.commit(tx).await;
    assert!(running.stop(Duration::from_secs(30)).await.clean);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_that_cannot_cancel_a_leased_timer_blocks_no_settlement() {
    open_producer_blocks_no_settlement(async |fixture, tx| {
        let (orders, t1) = (QueueName::new("orders").unwrap(), TimerName::new("t1").unwrap());
        assert!(!fixture.outbox().cancel_timer(tx, &orders, &t1).await.unwrap());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producer_that_cannot_extend_a_leased_timer_blocks_no_settlement() {
    open_producer_blocks_no_settlement(async |fixture, tx| {
        let later = Message::builder("orders").payload("later").due_after(Duration::from_secs(60));
        let staged = fixture.outbox().stage(tx, later.extending_timer("t1")).await.unwrap();
        assert_eq!(staged.outcomes()[0].1, StageOutcome::Ignored);
    })
    .await;
}

/// A transaction that locks one row delays one message: its batch is settled one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_row_delays_only_its_own_message() {
    let fixture = PostgresFixture::new().await;
    let gate = Arc::new(Semaphore::new(0));
    stage_orders(&fixture, 50).await;
    let running = worker(&fixture, &gate).start();
    until(async || running.report().claimed == 51).await;
    let mut tx = fixture.begin().await;
    let lock = "select from postrider.ready \
        where id = (select id from postrider.ready order by id limit 1 offset 25) for update";
    tx.execute(lock).await.unwrap();
    gate.add_permits(51);
    until(async || running.report().delivered == 50).await;
    fixture.rollback(tx).await;
    until(async || running.report().delivered == 51).await;
    assert!(running.stop(Duration::from_secs(30)).await.clean);
}

/// Numbers of queues that were drawn in rolled-back transactions are drawn again.
#[tokio::test]
async fn rolled_back_first_uses_do_not_exhaust_queue_numbers() {
    let fixture = PostgresFixture::new().await;
    fixture.run("select setval('postrider.queue_number', 32760)").await;
    for _ in 0..20 {
        let mut tx = fixture.begin().await;
        fixture.outbox().stage(&mut tx, Message::builder("not-yet").payload("x")).await.unwrap();
        fixture.rollback(tx).await;
    }
    for number in 0..20 {
        let message = Message::builder(format!("queue-{number}")).payload("x").build().unwrap();
        stage(&fixture, &[message]).await;
    }
    let count = "select count(distinct id) from postrider.queue";
    let numbers: i64 = sqlx::query_scalar(count).fetch_one(&fixture.app).await.unwrap();
    assert_eq!(numbers, 20);
}

/// Positions are behind their tables after a restore without sequences. Then staging and promoting a timer fail: a colliding position
/// taken for a duplicate would lose the message without a word.
#[tokio::test]
async fn position_behind_its_tables_is_an_error_and_loses_nothing() {
    let fixture = PostgresFixture::new().await;
    stage_orders(&fixture, 20).await;
    let late = Message::builder("orders").payload("late").due_after(Duration::from_secs(60));
    stage(&fixture, &[late.build().unwrap()]).await;
    fixture.run("select setval('postrider.message_position', 1, false)").await;

    let mut tx = fixture.begin().await;
    let given = Message::builder("orders").payload("given").id(MessageId::at(SystemTime::now()));
    let staged = fixture.outbox().stage(&mut tx, given).await;
    assert!(staged.is_err(), "a colliding position is not a duplicate: {staged:?}");
    fixture.rollback(tx).await;

    fixture.advance(Duration::from_secs(120)).await;
    let request = ClaimRequest::new(QueueName::new("orders").unwrap(), 100);
    for _ in 0..3 {
        fixture.store().claim(&request).await.ok();
    }
    let count = "select (select count(*) from postrider.ready) + (select count(*) from postrider.scheduled)";
    let left: i64 = sqlx::query_scalar(count).fetch_one(&fixture.app).await.unwrap();
    assert_eq!(left, 22, "20 orders and 2 timers");
}
