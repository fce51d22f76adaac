//! A cancelled `begin` must not lose the writes of later users of the connection.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use postrider_testkit::postgres::TestDatabase;
use sqlx::{Connection, PgConnection, PgPool, Row, postgres::PgPoolOptions};
use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

const MOST_POLLS: usize = 40;

/// Cancels `begin` after each number of polls, writes through the same pool, and counts the writes that were lost although they
/// were reported as successful.
async fn lost_writes(pool: impl Fn() -> PgPoolOptions) -> i64 {
    let database = TestDatabase::empty().await;
    let mut truth = PgConnection::connect(database.url()).await.unwrap();
    sqlx::raw_sql("create table written (n int)").execute(&mut truth).await.unwrap();
    let mut reported = 0;
    for polls in 1..=MOST_POLLS {
        let pool = pool().max_connections(1).connect(database.url()).await.unwrap();
        cancel_begin(&pool, polls).await;
        sqlx::query("insert into written values (1)").execute(&pool).await.unwrap();
        reported += 1;
        // The connection ends without a commit, as in a crash or at the end of its life.
        pool.close().await;
    }
    let row = sqlx::query("select count(*) from written").fetch_one(&mut truth).await.unwrap();
    reported - row.get::<i64, _>(0)
}

async fn cancel_begin(pool: &PgPool, polls: usize) {
    let mut begin = pin!(pool.begin());
    for _ in 0..polls {
        if let Poll::Ready(tx) = begin.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            tx.unwrap().rollback().await.unwrap();
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The bug that the guard is for. When this test fails, sqlx has fixed the bug, and the guard can be removed.
#[tokio::test]
async fn control_unguarded_pool_loses_writes_after_cancelled_begin() {
    // The poll that sends BEGIN depends on the server's timing: a busy machine may need another attempt.
    for _ in 0..20 {
        if lost_writes(PgPoolOptions::new).await > 0 {
            return;
        }
    }
    panic!("no write was lost");
}

#[tokio::test]
async fn guarded_pool_loses_no_write_after_cancelled_begin() {
    assert_eq!(lost_writes(|| postrider_stores::postgres::guard(PgPoolOptions::new())).await, 0);
}
