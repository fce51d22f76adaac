//! The consumer suite on RabbitMQ.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/consuming.rs"]
mod consuming;
#[path = "support/rabbit.rs"]
mod rabbit;
#[path = "support/rabbitmq_source.rs"]
mod rabbitmq_source;
mod support;

use consuming::OnMemoryStore;
use rabbitmq_source::RabbitSourceFixture;

mod quorum_queues {
    use super::*;
    async fn queues() -> OnMemoryStore<RabbitSourceFixture> {
        OnMemoryStore::new(RabbitSourceFixture::quorum()).await
    }
    postrider_testkit::consumer_suite!(queues, unordered);
}

/// Classic queues do not count deliveries, so the inbox does.
mod classic_queues {
    use super::*;
    async fn queues() -> OnMemoryStore<RabbitSourceFixture> {
        OnMemoryStore::new(RabbitSourceFixture::classic()).await
    }
    postrider_testkit::consumer_suite!(queues, unordered);
}
