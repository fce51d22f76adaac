//! The consumer suite on NATS JetStream.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/nats_source.rs"]
mod nats_source;
#[path = "support/nats.rs"]
mod server;
mod support;

async fn streams() -> consuming::OnMemoryStore<nats_source::NatsSourceFixture> {
    consuming::OnMemoryStore::new(nats_source::NatsSourceFixture::shared()).await
}

postrider_testkit::consumer_suite!(streams, unordered);
