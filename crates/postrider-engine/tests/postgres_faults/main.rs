//! What becomes of messages when processes and servers die. Workers run in processes of their own: this test program,
//! started again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod frozen;
mod killed;
#[path = "../support/log.rs"]
mod log;
#[path = "../support/orders.rs"]
mod orders;
mod outages;
mod pooled;
#[path = "../support/postgres_shop.rs"]
mod postgres_shop;
#[path = "../support/shop.rs"]
mod shop;
mod stopped;

#[path = "../support/storm.rs"]
mod storm;

use postrider_testkit::process;

/// The name of the next function.
const BODY: &str = "a_worker";

/// Not a test of its own: the body of a worker's process, which does nothing unless it is told what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker() {
    let Some(told) = process::told() else { return };
    shop::work::<postgres_shop::PostgresShop>(&told).await;
}
