//! Workers in processes of their own on one file, killed at any moment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/orders.rs"]
mod orders;
#[path = "support/shop.rs"]
mod shop;
#[path = "support/sqlite_shop.rs"]
mod sqlite_shop;
#[path = "support/storm.rs"]
mod storm;

use postrider_testkit::process;
use shop::Shop;
use sqlite_shop::SqliteShop;
use std::time::Duration;
use storm::{Storm, pass_over};

/// Nothing is lost, nothing is invented, effects in transactions happen once; and plain handlers are seen to run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_on_one_file_lose_nothing_and_double_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("shop.db").to_str().unwrap().to_owned();
    let shop = SqliteShop::open(&address).await;
    shop.build().await;
    let storm = Storm {
        body: "a_worker",
        address,
        journal: folder.path().join("journal"),
        workers: 3,
        kills: 20,
        messages: 10_000,
        producers: 2,
        batch: 50,
        lease_for: Duration::from_secs(2),
    };
    pass_over(&shop, &storm).await;
}

/// Not a test of its own: the body of a worker's process, which does nothing unless it is told what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker() {
    let Some(told) = process::told() else { return };
    shop::work::<SqliteShop>(&told).await;
}
