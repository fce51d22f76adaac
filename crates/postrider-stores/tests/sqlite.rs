//! The SQLite store passes the whole store suite.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/sqlite.rs"]
mod support;

async fn receiving() -> consuming::OnMemoryQueue<support::SqliteFixture> {
    consuming::OnMemoryQueue::new(support::SqliteFixture::new().await)
}

postrider_testkit::store_suite!(support::SqliteFixture::new, one_writer);
postrider_testkit::worker_suite!(support::SqliteFixture::new);
postrider_testkit::relay_suite!(support::SqliteFixture::new);
postrider_testkit::consumer_suite!(receiving);
postrider_testkit::saga_suite!(support::SqliteFixture::new);
