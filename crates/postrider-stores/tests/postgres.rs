//! The PostgreSQL store passes the whole store suite.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/postgres.rs"]
mod support;

async fn receiving() -> consuming::OnMemoryQueue<support::PostgresFixture> {
    consuming::OnMemoryQueue::new(support::PostgresFixture::new().await)
}

postrider_testkit::store_suite!(support::PostgresFixture::new);
postrider_testkit::worker_suite!(support::PostgresFixture::new);
postrider_testkit::relay_suite!(support::PostgresFixture::new);
postrider_testkit::consumer_suite!(receiving);
postrider_testkit::saga_suite!(support::PostgresFixture::new);
