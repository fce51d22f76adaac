//! From one PostgreSQL through Kafka into another, while everything is killed.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/pipeline.rs"]
mod pipeline;
#[path = "support/kafka.rs"]
mod server;

use pipeline::{Bodies, Killed};
use postrider_core::{Source, Transport};
use postrider_testkit::broker::Kafka;
use postrider_transports::kafka::{KafkaSource, KafkaTransport};
use std::{sync::Arc, time::Duration};

/// Not a test of its own: the body of the relay's process, which does nothing unless it is told what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay() {
    let transport = |url: String| async move {
        let transport: Arc<dyn Transport> = Arc::new(KafkaTransport::connect(url).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(transport).await;
}

/// Not a test of its own: the body of the consumer's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer() {
    let source = |url: String| async move {
        let builder = KafkaSource::builder(url, "orders").with_group("billing");
        let builder = builder.with_session_timeout(Duration::from_secs(6));
        Arc::new(builder.build().unwrap()) as Arc<dyn Source>
    };
    pipeline::consumer(source).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_has_one_effect_and_one_follow_up() {
    let broker = Kafka::start().await;
    let url = broker.url().to_owned();
    server::Cluster::at(&url).create("orders", 3, 1, &[]).await;
    pipeline::run(Killed::new(broker), Bodies { relay: "a_relay", consumer: "a_consumer" }).await;
}
