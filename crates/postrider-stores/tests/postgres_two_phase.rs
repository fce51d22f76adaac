//! Staging in a transaction that is prepared for a two-phase commit: PostgreSQL refuses to prepare one that has notified.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_core::{Message, MessageId, OutboxExt, schema::Schema};
use postrider_engine::{Context, Failure, Queue, Worker};
use postrider_stores::postgres::PostgresStore;
use postrider_testkit::server::PrivatePostgres;
use sqlx::{AssertSqlSafe, Executor, PgPool, Postgres, Row, Transaction};
use std::time::{Duration, SystemTime};

const MINUTE: Duration = Duration::from_secs(60);

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(MINUTE, waiting).await.expect("timed out");
}

/// Waits until a worker is idle, so that staging would notify it.
async fn until_idle(app: &PgPool) {
    let idle = "select count(*) from postrider.idle where until > clock_timestamp() + interval '5 s'";
    until(async || sqlx::query(idle).fetch_one(app).await.unwrap().get::<i64, _>(0) > 0).await;
}

async fn prepare(mut tx: Transaction<'static, Postgres>, name: &str) -> Result<(), sqlx::Error> {
    tx.execute(AssertSqlSafe(format!("prepare transaction '{name}'"))).await?;
    // The session is in no transaction any more.
    tx.rollback().await
}

/// Ways to stage without a notification: the setting for Rust and for plain SQL, and the outbox's option.
async fn stage(store: &PostgresStore, tx: &mut Transaction<'static, Postgres>, way: &str) {
    let plain = || Message::builder("orders").payload("plain");
    let given = || Message::builder("orders").payload("given").id(MessageId::at(SystemTime::now()));
    if way != "the option" {
        tx.execute("set local postrider.notify = off").await.unwrap();
    }
    match way {
        "the option" => {
            let outbox = store.outbox().without_notifications();
            outbox.stage(tx, plain()).await.unwrap();
            outbox.stage(tx, given()).await.unwrap();
            outbox.behind_pooler().stage(tx, plain()).await.unwrap();
        }
        "the setting" => {
            store.outbox().stage(tx, plain()).await.unwrap();
            store.outbox().stage(tx, given()).await.unwrap();
            let other = Message::builder("letters").payload("other").build().unwrap();
            let batch = [plain().build().unwrap(), other];
            postrider_core::Outbox::stage_all(&store.outbox(), tx, &batch).await.unwrap();
        }
        _ => {
            tx.execute("select postrider.stage('orders', 'plain')").await.unwrap();
            tx.execute("select postrider.stage('orders', 'given', id => gen_random_uuid())").await.unwrap();
            tx.execute("insert into postrider.outbox (queue, payload_json) values ('orders', '1')")
                .await
                .unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prepared_transaction_stages_beside_idle_worker_which_finds_it_by_polling() {
    let server = PrivatePostgres::start().await;
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    let app = PgPool::connect(&server.url()).await.unwrap();
    for queue in ["orders", "letters"] {
        app.execute(AssertSqlSafe(format!("select postrider.queue_id('{queue}')"))).await.unwrap();
    }
    let queue = || Queue::new("orders").on_any(async |_: Context| Ok::<(), Failure>(()));
    let worker = Worker::builder_on(std::sync::Arc::new(store.clone())).queue(queue()).build().unwrap();
    let running = worker.start();
    until_idle(&app).await;

    // Control: a transaction that has notified cannot be prepared.
    let mut tx = app.begin().await.unwrap();
    store.outbox().stage(&mut tx, Message::builder("orders").payload("loud")).await.unwrap();
    let refused = prepare(tx, "loud").await.unwrap_err();
    assert!(refused.to_string().contains("NOTIFY"), "{refused}");

    for (number, way) in ["the option", "the setting", "plain SQL"].into_iter().enumerate() {
        until_idle(&app).await;
        let mut tx = app.begin().await.unwrap();
        stage(&store, &mut tx, way).await;
        prepare(tx, "silent").await.unwrap_or_else(|error| panic!("{way}: {error}"));
        app.execute("commit prepared 'silent'").await.unwrap();
        let delivered = 3 * (number as u64 + 1);
        until(async || running.report().delivered == delivered).await;
    }
    assert!(running.stop(MINUTE).await.clean);
    store.close().await;
}
