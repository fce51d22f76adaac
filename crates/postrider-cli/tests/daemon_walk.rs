//! The README's walk from `dev` to dead letters that arrive after all, with a broker that breaks, as it stands there.

#![cfg(all(unix, feature = "redis"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::postgres::TestDatabase;
use std::net::TcpListener;
use support::readme;
use tempfile::tempdir;

/// A port that was free a moment ago. Redis is started by the walk itself.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_gets_from_dev_to_dead_letters_that_arrive_after_all() {
    let (database, folder, port) = (TestDatabase::empty().await, tempdir().unwrap(), free_port());
    // psql does not know the settings of our driver.
    let url = database.url().split('?').next().unwrap();
    let redis = format!("redis://127.0.0.1:{port}");
    let settings = [
        ("POSTRIDER_DB", url),
        ("REDIS_PORT", &port),
        ("REDIS_URL", &redis),
        ("POSTRIDER_HTTP_LISTEN", "off"),
    ];
    readme::walk("## A walk", folder.path(), &settings);
}
