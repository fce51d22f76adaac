//! An ear that hears goes on hearing; one that does not says so.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    Error, Message, OutboxExt, QueueName,
    wake::{Ear, Sleeper, Wake},
};
use postrider_stores::postgres::PostgresOptions;
use postrider_testkit::{proxy::Fault, round_trips::CountingProxy};
use sqlx::Executor;
use std::time::Duration;
use support::PostgresFixture;
use tokio::time::timeout;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(60);

/// Calls itself after every moment of silence, and waits long for the answer: the machine may be busy.
fn attentive(options: PostgresOptions) -> PostgresOptions {
    options.with_hearing(Duration::from_millis(20), PATIENCE)
}

async fn asleep(fixture: &PostgresFixture) -> Box<dyn Ear> {
    let queue: QueueName = "orders".parse().unwrap();
    let sleeper = Sleeper { worker: Uuid::now_v7(), queues: vec![queue] };
    fixture.store.lie_down(&sleeper, PATIENCE).await.unwrap();
    fixture.store.listen(&sleeper.queues).await.unwrap()
}

async fn stage(fixture: &PostgresFixture) {
    let mut tx = fixture.app.begin().await.unwrap();
    fixture.store.outbox().stage(&mut tx, Message::builder("orders")).await.unwrap();
    tx.commit().await.unwrap();
}

/// Its calls are its own affair: nobody is woken by them, and signals are heard between them.
#[tokio::test]
async fn an_ear_that_calls_itself_hears_signals_only() {
    let fixture = PostgresFixture::open(attentive).await;
    let mut ear = asleep(&fixture).await;
    let silent = timeout(Duration::from_millis(500), ear.wait()).await;
    assert!(silent.is_err(), "{silent:?}");
    stage(&fixture).await;
    let heard = timeout(PATIENCE, ear.wait()).await.unwrap().unwrap();
    assert_eq!(heard.as_str(), "orders");
}

/// A wait may be dropped at any moment, in the middle of a call, too: the next one neither misses a signal nor takes itself
/// for deaf.
#[tokio::test]
async fn a_dropped_wait_loses_no_signal_and_makes_nobody_deaf() {
    let fixture = PostgresFixture::open(attentive).await;
    let mut ear = asleep(&fixture).await;
    for round in 0..20 {
        stage(&fixture).await;
        let mut waits = 0;
        let heard = loop {
            // From nothing at all to a few calls.
            match timeout(Duration::from_micros(100 * (waits % 300)), ear.wait()).await {
                Ok(heard) => break heard,
                Err(_) => waits += 1,
            }
            assert!(waits < 10_000, "round {round}: the signal was lost");
        };
        assert_eq!(heard.unwrap().as_str(), "orders");
    }
}

#[tokio::test]
async fn a_lost_connection_is_told() {
    let fixture = PostgresFixture::new().await;
    let mut ear = asleep(&fixture).await;
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and application_name = 'postrider listener'";
    fixture.app.execute(end).await.unwrap();
    let error = timeout(PATIENCE, ear.wait()).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
}

/// A connection that is dead without an end knowing it.
#[tokio::test]
async fn a_network_that_swallows_everything_is_noticed() {
    let database = PostgresFixture::new().await;
    let (proxy, through) = CountingProxy::before_database(database.database.url()).await;
    let options = PostgresOptions::new(database.database.url()).unwrap();
    let options = options.with_hearing(Duration::from_millis(20), Duration::from_secs(5));
    let store = postrider_stores::postgres::PostgresStore::open(options.with_listen_url(&through).unwrap());
    let mut ear = store.await.unwrap().listen(&["orders".parse().unwrap()]).await.unwrap();
    proxy.proxy().set(Fault::BlackHole);
    let error = timeout(PATIENCE, ear.wait()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("was not heard within 5s"), "{error}");
}
