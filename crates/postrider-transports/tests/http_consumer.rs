//! A consumer of webhooks passes the suite.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/http_source.rs"]
mod hooks;
mod support;

async fn webhooks() -> consuming::OnMemoryStore<hooks::HttpFixture> {
    consuming::OnMemoryStore::new(hooks::fixture()).await
}

postrider_testkit::consumer_suite!(webhooks, unordered);
