//! Listeners: they keep receiving notifications, and fail when notifications do not arrive.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    Error, Message, OutboxExt, QueueName,
    notifier::{IdleWorker, Listener, Notifier},
};
use postrider_stores::postgres::PostgresOptions;
use postrider_testkit::{proxy::Fault, round_trips::CountingProxy};
use sqlx::Executor;
use std::time::Duration;
use support::PostgresFixture;
use tokio::time::timeout;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(60);

/// Probes itself after a short silence, and waits long for the probe: the machine may be busy.
fn attentive(options: PostgresOptions) -> PostgresOptions {
    options.with_keepalive(Duration::from_millis(20), PATIENCE)
}

async fn idle_listener(fixture: &PostgresFixture) -> Box<dyn Listener> {
    let queue: QueueName = "orders".parse().unwrap();
    let idle = IdleWorker { worker: Uuid::now_v7(), queues: vec![queue] };
    fixture.store.register_idle(&idle, PATIENCE).await.unwrap();
    fixture.store.listen(&idle.queues).await.unwrap()
}

async fn stage(fixture: &PostgresFixture) {
    let mut tx = fixture.app.begin().await.unwrap();
    fixture.store.outbox().stage(&mut tx, Message::builder("orders")).await.unwrap();
    tx.commit().await.unwrap();
}

/// Probes are internal: they wake no worker, and notifications arrive between them.
#[tokio::test]
async fn listener_that_probes_itself_returns_only_notifications() {
    let fixture = PostgresFixture::open(attentive).await;
    let mut listener = idle_listener(&fixture).await;
    let silent = timeout(Duration::from_millis(500), listener.wait()).await;
    assert!(silent.is_err(), "{silent:?}");
    stage(&fixture).await;
    let received = timeout(PATIENCE, listener.wait()).await.unwrap().unwrap();
    assert_eq!(received.as_str(), "orders");
}

/// A wait may be cancelled at any moment, also in the middle of a probe: the next one neither misses a notification nor fails.
#[tokio::test]
async fn cancelled_wait_loses_no_notification() {
    let fixture = PostgresFixture::open(attentive).await;
    let mut listener = idle_listener(&fixture).await;
    for round in 0..20 {
        stage(&fixture).await;
        let mut waits = 0;
        let received = loop {
            // From no probe at all to a few.
            match timeout(Duration::from_micros(100 * (waits % 300)), listener.wait()).await {
                Ok(received) => break received,
                Err(_) => waits += 1,
            }
            assert!(waits < 10_000, "round {round}: the signal was lost");
        };
        assert_eq!(received.unwrap().as_str(), "orders");
    }
}

#[tokio::test]
async fn lost_connection_is_an_error() {
    let fixture = PostgresFixture::new().await;
    let mut listener = idle_listener(&fixture).await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and application_name = 'postrider listener'";
    fixture.app.execute(end).await.unwrap();
    let error = timeout(PATIENCE, listener.wait()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
}

/// A connection that is dead without either end noticing.
#[tokio::test]
async fn silent_network_failure_is_detected() {
    let database = PostgresFixture::new().await;
    let (proxy, through) = CountingProxy::before_database(database.database.url()).await;
    let options = PostgresOptions::new(database.database.url()).unwrap();
    let options = options.with_keepalive(Duration::from_millis(20), Duration::from_secs(5));
    let store = postrider_stores::postgres::PostgresStore::open(options.with_listen_url(&through).unwrap());
    let mut listener = store.await.unwrap().listen(&["orders".parse().unwrap()]).await.unwrap();
    proxy.proxy().set(Fault::BlackHole);
    let error = timeout(PATIENCE, listener.wait()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("did not arrive within 5s"), "{error}");
}
