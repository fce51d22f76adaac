//! The pools of the application and of the store: a cancelled `begin` must not lose the writes of later users of the connection.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_core::{ClaimRequest, Store, TxBackend, schema::Schema};
use postrider_stores::postgres::{PostgresStore, guard};
use postrider_testkit::{
    postgres::TestDatabase,
    proxy::{Fault, FaultProxy},
};
use sqlx::{Connection, PgConnection, PgPool, Row, postgres::PgPoolOptions};
use std::{
    pin::pin,
    task::{Context, Waker},
};

/// The polls after which `begin` is cancelled. A stalled connection has sent BEGIN by then, and has no reply.
const POLLS: usize = 5;

/// Cancels `begin` while BEGIN is in flight, writes through the same pool, and returns the number of writes that were reported as
/// successful and are lost.
async fn lost_writes<T>(pool: PgPoolOptions, begin: impl AsyncFn(PgPool, &PostgresStore) -> T) -> i64 {
    let database = TestDatabase::empty().await;
    let mut witness = PgConnection::connect(database.url()).await.unwrap();
    sqlx::raw_sql("create table written (n int)").execute(&mut witness).await.unwrap();
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let (proxy, url) = FaultProxy::before_url(database.url()).await;
    // One connection, which is not tested before use: the stall must not hold it up before BEGIN.
    let pool = pool.max_connections(1).test_before_acquire(false).connect(&url).await.unwrap();
    proxy.set(Fault::Stall);
    {
        let mut begin = pin!(begin(pool.clone(), &store));
        for _ in 0..POLLS {
            assert!(begin.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            tokio::task::yield_now().await;
        }
    }
    proxy.set(Fault::None);
    sqlx::query("insert into written values (1)").execute(&pool).await.unwrap();
    // The connection ends without a commit, as in a crash or at the end of its life.
    pool.close().await;
    let row = sqlx::query("select count(*) from written").fetch_one(&mut witness).await.unwrap();
    1 - row.get::<i64, _>(0)
}

/// The bug that the guard is for. When this test fails, sqlx has fixed the bug, and the guard can be removed.
#[tokio::test]
async fn control_unguarded_pool_loses_writes_after_cancelled_begin() {
    let begin = async |pool: PgPool, _: &PostgresStore| pool.begin().await.unwrap();
    assert_eq!(lost_writes(PgPoolOptions::new(), begin).await, 1);
}

#[tokio::test]
async fn guarded_pool_loses_no_write_after_cancelled_begin() {
    let begin = async |pool: PgPool, _: &PostgresStore| pool.begin().await.unwrap();
    assert_eq!(lost_writes(guard(PgPoolOptions::new()), begin).await, 0);
}

#[tokio::test]
async fn unguarded_pool_loses_no_write_after_cancelled_begin_of_the_store() {
    let begin = async |pool: PgPool, store: &PostgresStore| store.transactions(pool).begin().await.unwrap();
    assert_eq!(lost_writes(PgPoolOptions::new(), begin).await, 0);
    let begin = async |pool: PgPool, store: &PostgresStore| {
        store.transactions(pool).read_committed().begin().await.unwrap()
    };
    assert_eq!(lost_writes(PgPoolOptions::new(), begin).await, 0);
}

/// A program that drops its store in `main`, when no runtime runs any more: the store still keeps connections.
#[test]
fn store_is_dropped_outside_of_a_runtime_without_panic() {
    for drops_runtime_first in [false, true] {
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            let (store, database) = runtime.block_on(async {
                let database = TestDatabase::empty().await;
                let store = PostgresStore::connect(database.url()).await.unwrap();
                store.migrate().await.unwrap();
                // A statement of the hot path, whose connection is kept.
                let request = ClaimRequest::new("orders".parse().unwrap(), 1);
                assert_eq!(store.claim(&request).await.unwrap(), []);
                (store, database)
            });
            if drops_runtime_first {
                drop(runtime);
                drop(store);
            } else {
                drop(store);
                drop(runtime);
            }
            drop(database);
        });
        dropping.join().expect("the drop panicked");
    }
}
