//! The webhook source passes the suite: real requests of our own transport to a real server.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/http_source.rs"]
mod hooks;
mod support;

async fn fixture() -> hooks::HttpFixture {
    hooks::fixture()
}

postrider_testkit::source_suite!(fixture, unordered);
