//! A worker stays within its connection limit, however many handlers run.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_core::{Message, Outbox, schema::Schema};
use postrider_engine::{Context, Failure, Queue, Worker};
use postrider_stores::postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::postgres::TestDatabase;
use sqlx::{PgPool, Row};
use std::time::Duration;

/// Eight for claims and settlements, two for the rest, and one for the listener.
const MAX_CONNECTIONS: i64 = 8 + 2 + 1;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_stays_within_its_connection_limit() {
    let database = TestDatabase::empty().await;
    let store = PostgresStore::open(PostgresOptions::new(database.url()).unwrap()).await.unwrap();
    store.migrate().await.unwrap();
    let app = PgPool::connect(database.url()).await.unwrap();
    let messages: Vec<_> = (0..5_000).map(|n| Message::builder("orders").json(&n).build().unwrap()).collect();
    let mut tx = app.begin().await.unwrap();
    store.outbox().stage_all(&mut tx, &messages).await.unwrap();
    tx.commit().await.unwrap();

    let queue = Queue::new("orders").concurrency(64).on_any(async |_: Context| {
        tokio::task::yield_now().await;
        Ok::<(), Failure>(())
    });
    let running = Worker::builder(store.clone()).queue(queue).build().unwrap().start();
    let mut peak = 0;
    while running.report().delivered < 5_000 {
        let row = sqlx::query(
            "select count(*) from pg_stat_activity \
             where datname = current_database() and application_name like 'postrider%'",
        );
        peak = peak.max(row.fetch_one(&app).await.unwrap().get::<i64, _>(0));
    }
    assert!(peak > 0 && peak <= MAX_CONNECTIONS, "{peak} connections");
    assert!(running.stop(Duration::from_secs(30)).await.clean);
    store.close().await;
}
