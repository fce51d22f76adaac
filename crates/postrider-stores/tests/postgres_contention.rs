//! Transactions of the application that hold rows, and what they hold up: at most their own messages.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    ClaimRequest, Lease, Message, MessageId, OnFailure, Outbox, OutboxExt, QueueName, QueuePolicy,
    StageOutcome, Store, TimerName, schema::Schema,
};
use postrider_engine::{Context, Failure, Queue, Worker};
use postrider_testkit::Fixture;
use sqlx::{AssertSqlSafe, Executor};
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

/// Validation finds the positions that are behind, and prints the statement that repairs them.
#[tokio::test]
async fn validate_reports_position_behind_its_tables_with_its_fix() {
    let fixture = PostgresFixture::new().await;
    stage_orders(&fixture, 20).await;
    assert_eq!(fixture.store.validate().await.unwrap(), []);
    for (lose, greatest) in [("ready", "20"), ("dead", "500")] {
        if lose == "dead" {
            let letter = "insert into postrider.dead (id, staged_at, due_at, message_id, attempts, deliveries, queue, ordered, \
                          payload, reason) select 500, now(), now(), gen_random_uuid(), 1, 1, 1, false, '', 'rejected'";
            fixture.run(letter).await;
        }
        fixture.run("select setval('postrider.message_position', 1, false)").await;
        let drift = fixture.store.validate().await.unwrap();
        assert_eq!(drift.len(), 1, "{drift:?}");
        assert_eq!(drift[0].object, "sequence message_position");
        let fix = drift[0].fix.clone().unwrap();
        assert!(fix.starts_with("select setval(") && fix.contains(greatest), "{fix}");
        fixture.app.execute(AssertSqlSafe(fix)).await.unwrap();
        assert_eq!(fixture.store.validate().await.unwrap(), []);
        stage_orders(&fixture, 1).await;
    }
}

/// Two leases, in the order of their ids.
async fn two_leases(fixture: &PostgresFixture) -> [Lease; 2] {
    let orders = [0, 1].map(|_| Message::builder("orders").payload("order").build().unwrap());
    stage(fixture, &orders).await;
    let request = ClaimRequest::new(QueueName::new("orders").unwrap(), 2);
    let mut leases: Vec<_> =
        fixture.store.claim(&request).await.unwrap().into_iter().map(|claimed| claimed.lease).collect();
    leases.sort_by_key(Lease::id);
    leases.try_into().unwrap()
}

/// The messages whose leases last for longer than half an hour.
async fn renewed(fixture: &PostgresFixture) -> i64 {
    let sql = "select (select count(*) from postrider.ready where lease_until > clock_timestamp() + interval '30 min') \
               + (select count(*) from postrider.lane where lease_until > clock_timestamp() + interval '30 min')";
    sqlx::query_scalar(sql).fetch_one(&fixture.app).await.unwrap()
}

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The other leases are renewed, and the locked one is not reported as lost; a lost one is.
#[tokio::test]
async fn renewal_waits_for_no_locked_row() {
    let fixture = PostgresFixture::new().await;
    let [first, second] = two_leases(&fixture).await;
    let [lost, _] = two_leases(&fixture).await;
    fixture.store.settle(&[lost.done()]).await.unwrap();
    let mut tx = fixture.begin().await;
    let lock = "select from postrider.ready where message_id = $1 for update";
    sqlx::query(lock).bind(first.id().as_uuid()).execute(&mut *tx).await.unwrap();
    let leases = [first, second, lost.clone()];
    assert_eq!(fixture.store.renew(&leases, HOUR).await.unwrap(), [lost]);
    assert_eq!(renewed(&fixture).await, 1);
    fixture.rollback(tx).await;
    fixture.store.renew(&leases, HOUR).await.unwrap();
    assert_eq!(renewed(&fixture).await, 2);
}

#[tokio::test]
async fn renewal_waits_for_no_locked_lane() {
    let fixture = PostgresFixture::new().await;
    let orders = QueueName::new("orders").unwrap();
    fixture.store.declare(&orders, &QueuePolicy::by_key(OnFailure::Block)).await.unwrap();
    let batch = ["a", "b"].map(|key| Message::builder("orders").key(key).payload("order").build().unwrap());
    stage(&fixture, &batch).await;
    let claimed = fixture.store.claim(&ClaimRequest::new(orders, 2)).await.unwrap();
    let leases: Vec<_> = claimed.into_iter().map(|claimed| claimed.lease).collect();
    let mut tx = fixture.begin().await;
    tx.execute("select from postrider.lane where key = 'a' for update").await.unwrap();
    assert_eq!(fixture.store.renew(&leases, HOUR).await.unwrap(), []);
    assert_eq!(renewed(&fixture).await, 1);
    fixture.rollback(tx).await;
    assert_eq!(fixture.store.renew(&leases, HOUR).await.unwrap(), []);
    assert_eq!(renewed(&fixture).await, 2);
}

/// A settlement has locked one message and waits for another, which a transaction holds. A renewal of both, in the order of their ids,
/// would wait for it, and each for the other when the transaction ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewal_beside_settlement_in_another_order_is_no_deadlock() {
    let fixture = PostgresFixture::new().await;
    let [first, second] = two_leases(&fixture).await;
    let mut tx = fixture.begin().await;
    let lock = "select from postrider.ready where message_id = $1 for update";
    sqlx::query(lock).bind(first.id().as_uuid()).execute(&mut *tx).await.unwrap();
    // Successes are settled before retries.
    let batch = [first.retry(Duration::from_secs(60), "busy"), second.done()];
    let store = fixture.store.clone();
    let settling = tokio::spawn(async move { store.settle(&batch).await });
    fixture.database.somebody_waits().await;
    assert_eq!(fixture.store.renew(&[first, second], HOUR).await.unwrap(), []);
    fixture.rollback(tx).await;
    assert_eq!(settling.await.unwrap().unwrap(), []);
}
