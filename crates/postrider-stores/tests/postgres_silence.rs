//! Connections that go silent without an end: a failover, a restarted pooler, a forgotten NAT entry. The request timeout ends every wait.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{ClaimRequest, ClaimedMessage, ClientOptions, Error, Message, OutboxExt, Store};
use postrider_stores::postgres::{PostgresOptions, PostgresStore};
use postrider_testkit::proxy::{Fault, FaultProxy};
use std::time::{Duration, SystemTime};
use support::PostgresFixture;
use tokio::time::timeout;

/// A test that reaches it has hung.
const PATIENCE: Duration = Duration::from_secs(60);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// More than the pool has.
const MANY: usize = 24;

struct Silenced {
    fixture: PostgresFixture,
    proxy: FaultProxy,
    store: PostgresStore,
}

impl Silenced {
    async fn new(configure: impl Fn(PostgresOptions) -> PostgresOptions) -> Self {
        let fixture = PostgresFixture::new().await;
        let (proxy, url) = FaultProxy::before_url(fixture.database.url()).await;
        let client = ClientOptions::new(url).with_request_timeout(REQUEST_TIMEOUT);
        let store = PostgresStore::open(configure(PostgresOptions::new(client).unwrap())).await.unwrap();
        Self { fixture, proxy, store }
    }

    async fn stage(&self) {
        let mut tx = self.fixture.app.begin().await.unwrap();
        self.fixture.store.outbox().stage(&mut tx, Message::builder("orders")).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn claim(&self) -> Result<Vec<ClaimedMessage>, Error> {
        let request = ClaimRequest::new("orders".parse().unwrap(), 10);
        timeout(PATIENCE, self.store.claim(&request)).await.expect("the claim waits without an end")
    }

    /// Opens several connections, which are idle afterwards.
    async fn fill_pool(&self) {
        let pings: Vec<_> = (0..4)
            .map(|_| {
                let store = self.store.clone();
                tokio::spawn(async move { store.ping().await })
            })
            .collect();
        for ping in pings {
            ping.await.unwrap().unwrap();
        }
    }

    /// Existing connections stay silent, and new ones reach the server.
    fn recover(&self) {
        self.proxy.set(Fault::None);
    }
}

fn assert_no_reply<T: std::fmt::Debug>(result: Result<T, Error>) {
    let Err(Error::Unavailable(source)) = result else { panic!("{result:?}") };
    assert!(source.to_string().contains("did not reply within 1s"), "{source}");
}

#[tokio::test]
async fn statement_without_reply_is_unavailable_and_the_store_recovers() {
    let silenced = Silenced::new(|options| options).await;
    silenced.stage().await;
    silenced.fill_pool().await;
    let claimed = silenced.claim().await.unwrap();
    assert_eq!(claimed.len(), 1);
    silenced.proxy.set(Fault::BlackHole);
    assert_no_reply(silenced.claim().await);
    silenced.recover();
    // At once: no idle connection from before the failure is tried.
    silenced.store.settle(&[claimed[0].lease.done()]).await.unwrap();
    silenced.store.ping().await.unwrap();
    silenced.stage().await;
    assert_eq!(silenced.claim().await.unwrap().len(), 1);
}

#[tokio::test]
async fn statement_behind_pooler_without_reply_is_unavailable_and_the_store_recovers() {
    let silenced = Silenced::new(PostgresOptions::behind_pooler).await;
    silenced.stage().await;
    assert_eq!(silenced.claim().await.unwrap().len(), 1);
    silenced.proxy.set(Fault::BlackHole);
    assert_no_reply(silenced.claim().await);
    silenced.recover();
    silenced.stage().await;
    assert_eq!(silenced.claim().await.unwrap().len(), 1);
}

/// A statement of the transaction takes longer than the timeout, as if its reply had been lost.
#[tokio::test]
async fn transaction_without_reply_is_unavailable_and_the_store_recovers() {
    let silenced = Silenced::new(|options| options).await;
    for sql in [
        "create function sleep() returns trigger language plpgsql as 'begin perform pg_sleep(20); return new; end'",
        "create trigger sleep before insert on postrider.schedule for each row when (new.name = 'slow') execute function sleep()",
    ] {
        silenced.fixture.run(sql).await;
    }
    let message = [Message::builder("orders").build().unwrap()];
    let tick = async |schedule: &str| {
        let schedule = schedule.parse().unwrap();
        Store::tick(&silenced.store, &schedule, SystemTime::now(), &message).await
    };
    assert_no_reply(tick("slow").await);
    assert!(tick("quick").await.unwrap());
}

/// sqlx tests a returning connection without a bound: each cancelled statement would take a place of the pool.
#[tokio::test]
async fn cancelled_statements_on_silent_connections_do_not_use_up_the_pool() {
    let silenced = Silenced::new(|options| options).await;
    for _ in 0..MANY {
        silenced.claim().await.unwrap();
        silenced.proxy.set(Fault::BlackHole);
        // On the connection of the claim before, which is not tested again so soon.
        let cancelled = timeout(Duration::from_millis(5), silenced.claim()).await;
        assert!(cancelled.is_err(), "{cancelled:?}");
        silenced.recover();
    }
}

#[tokio::test]
async fn close_ends_although_connections_are_silent() {
    let silenced = Silenced::new(|options| options).await;
    silenced.fill_pool().await;
    silenced.claim().await.unwrap();
    silenced.proxy.set(Fault::BlackHole);
    let cancelled = timeout(Duration::from_millis(5), silenced.claim()).await;
    assert!(cancelled.is_err(), "{cancelled:?}");
    timeout(PATIENCE, silenced.store.close()).await.expect("close waits without an end");
}
