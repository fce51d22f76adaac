//! Worker processes on one SQLite file, killed at any moment.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kill_test.rs"]
mod kill_test;
#[path = "support/orders.rs"]
mod orders;
#[path = "support/shop.rs"]
mod shop;
#[path = "support/sqlite_shop.rs"]
mod sqlite_shop;

use kill_test::KillTest;
use postrider_testkit::process;
use shop::Shop;
use sqlite_shop::SqliteShop;
use std::time::Duration;

/// No message is lost or invented, transactional effects happen once, and plain handlers are seen to run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_on_one_file_lose_no_message_and_duplicate_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let address = folder.path().join("shop.db").to_str().unwrap().to_owned();
    let shop = SqliteShop::open(&address).await;
    shop.build().await;
    let kill_test = KillTest {
        body: "worker_process",
        address,
        journal: folder.path().join("journal"),
        workers: 3,
        kills: 20,
        messages: 10_000,
        producers: 2,
        batch: 50,
        lease_for: Duration::from_secs(2),
    };
    kill_test.run(&shop).await;
}

/// Not a test of its own: the body of a worker process, which does nothing without arguments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn worker_process() {
    let Some(args) = process::argument() else { return };
    shop::work::<SqliteShop>(&args).await;
}
