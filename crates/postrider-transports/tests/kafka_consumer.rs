//! A consumer of Kafka passes the suite.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/kafka_source.rs"]
mod fixture;
#[path = "support/kafka.rs"]
mod server;
mod support;

async fn topics() -> consuming::OnMemoryStore<fixture::KafkaSourceFixture> {
    consuming::OnMemoryStore::new(fixture::shared_server().await).await
}

postrider_testkit::consumer_suite!(topics);
