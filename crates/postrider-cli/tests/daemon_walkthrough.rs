//! README's sixty seconds and the outage guide, run as written.

#![cfg(all(unix, feature = "redis"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::postgres::TestDatabase;
use std::net::TcpListener;
use support::readme;
use tempfile::tempdir;

/// A free port. The walkthrough itself starts Redis.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

async fn walk(document: &str, heading: &str) {
    let (database, folder, port) = (TestDatabase::empty().await, tempdir().unwrap(), free_port());
    // psql does not accept the parameters of our driver.
    let url = database.url().split('?').next().unwrap();
    let redis = format!("redis://127.0.0.1:{port}");
    let settings = [
        ("POSTRIDER_DB", url),
        ("REDIS_PORT", &port),
        ("REDIS_URL", &redis),
        ("POSTRIDER_HTTP_LISTEN", "off"),
    ];
    readme::walk(document, heading, folder.path(), &settings);
}

#[tokio::test(flavor = "multi_thread")]
async fn readme_delivers_a_message_from_sql_to_redis() {
    walk(include_str!("../../../README.md"), "## Sixty seconds: plain SQL in, broker out").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_guide_ends_with_delivered_dead_letters() {
    walk(include_str!("../../../docs/guides/outage.md"), "## Walk").await;
}
