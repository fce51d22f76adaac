//! Transactions that settle their message are READ COMMITTED: the renewal of a lease changes the row that they settle.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{ClaimRequest, ClaimedMessage, Error, Message, OutboxExt, QueueName, Store, TxBackend};
use postrider_testkit::Fixture;
use sqlx::{
    Executor, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{str::FromStr, time::Duration};
use support::PostgresFixture;

async fn claim_one(fixture: &PostgresFixture) -> ClaimedMessage {
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, Message::builder("orders").payload("order")).await.unwrap();
    fixture.commit(tx).await;
    let request = ClaimRequest::new(QueueName::new("orders").unwrap(), 1);
    fixture.store.claim(&request).await.unwrap().remove(0)
}

/// A pool whose transactions have this isolation by default.
async fn pool(fixture: &PostgresFixture, isolation: &str) -> PgPool {
    let options = PgConnectOptions::from_str(fixture.database.url()).unwrap();
    let options = options.options([("default_transaction_isolation", isolation)]);
    PgPoolOptions::new().connect_with(options).await.unwrap()
}

#[tokio::test]
async fn begin_on_pool_with_stricter_isolation_is_refused_and_counts_no_attempt() {
    let fixture = PostgresFixture::new().await;
    for isolation in ["repeatable read", "serializable"] {
        let transactions = fixture.store.transactions(pool(&fixture, isolation).await);
        for _ in 0..2 {
            let refused = transactions.begin().await.unwrap_err();
            // Runners do not count what is unavailable.
            assert!(matches!(refused, Error::Unavailable(_)), "{refused:?}");
            let text = refused.to_string();
            assert!(text.contains(isolation) && text.contains("read_committed"), "{text}");
        }
    }
    fixture.store.transactions(pool(&fixture, "read uncommitted").await).begin().await.unwrap();
}

#[tokio::test]
async fn handler_that_outlives_a_renewal_settles_in_read_committed_transaction_of_strict_pool() {
    let fixture = PostgresFixture::new().await;
    let claimed = claim_one(&fixture).await;
    let transactions = fixture.store.transactions(pool(&fixture, "repeatable read").await).read_committed();
    let mut tx = transactions.begin().await.unwrap();
    tx.execute("select count(*) from postrider.ready").await.unwrap();
    let lease = claimed.lease.clone();
    assert_eq!(fixture.store.renew(&[lease], Duration::from_secs(60)).await.unwrap(), []);
    assert!(transactions.settle_in(&mut tx, &claimed.lease.done()).await.unwrap());
    transactions.commit(tx).await.unwrap();
}

/// The reason for the rule.
#[tokio::test]
async fn control_repeatable_read_transaction_cannot_settle_after_a_renewal() {
    let fixture = PostgresFixture::new().await;
    let claimed = claim_one(&fixture).await;
    let mut tx = fixture.app.begin_with("begin isolation level repeatable read").await.unwrap();
    tx.execute("select count(*) from postrider.ready").await.unwrap();
    let lease = claimed.lease.clone();
    assert_eq!(fixture.store.renew(&[lease], Duration::from_secs(60)).await.unwrap(), []);
    let transactions = fixture.store.transactions(fixture.app.clone());
    assert!(transactions.settle_in(&mut tx, &claimed.lease.done()).await.is_err());
}
