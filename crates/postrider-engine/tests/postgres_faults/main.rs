//! Failures of processes and servers. Workers run in processes of their own: this test program, started again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod clocks;
mod failover;
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
mod running_shop;
#[path = "../support/shop.rs"]
mod shop;
mod stopped;
mod switch_over;

#[path = "../support/kill_test.rs"]
mod kill_test;

use postrider_testkit::process;
use std::time::SystemTime;

/// The name of the next function.
const BODY: &str = "worker_process";

/// Not a test of its own: the body of a worker process, which does nothing without arguments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn worker_process() {
    let Some(args) = process::argument() else { return };
    shop::work::<postgres_shop::PostgresShop>(&args).await;
}

/// The name of the next function.
const WRONG_CLOCK: &str = "clock_process";

/// Not a test of its own: writes the time of its clock to the file that is its argument.
#[test]
#[ignore = "the body of a child process"]
fn clock_process() {
    let Some(file) = process::argument() else { return };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    std::fs::write(file, now.as_secs().to_string()).unwrap();
}
