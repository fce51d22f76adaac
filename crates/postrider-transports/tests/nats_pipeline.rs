//! From one PostgreSQL through NATS JetStream into another, while everything is killed.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/pipeline.rs"]
mod pipeline;

use async_nats::jetstream::stream::Config;
use pipeline::{Bodies, Killed};
use postrider_core::{Format, Source, Transport};
use postrider_testkit::broker::Nats;
use postrider_transports::nats::{NatsSource, NatsTransport};
use std::{sync::Arc, time::Duration};

/// Not a test of its own: the body of the relay's process, which does nothing unless it is told what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay() {
    let transport = |url: String| async move {
        let transport: Arc<dyn Transport> = Arc::new(NatsTransport::connect(url).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(Format::Binary, transport).await;
}

/// Not a test of its own: the body of the consumer's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer() {
    let source = |url: String| async move {
        let builder = NatsSource::builder(url, "ORDERS", "billing");
        let builder = builder.with_created_consumer("orders", Duration::from_secs(2));
        Arc::new(builder.build().unwrap()) as Arc<dyn Source>
    };
    pipeline::consumer(source).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_has_one_effect_and_one_follow_up() {
    let broker = Nats::start().await;
    let url = broker.url().to_owned();
    let context = async_nats::jetstream::new(async_nats::connect(&url).await.unwrap());
    let config = Config { name: "ORDERS".into(), subjects: vec!["orders".into()], ..Config::default() };
    context.create_stream(config).await.unwrap();
    pipeline::run(Killed::new(broker), Bodies { relay: "a_relay", consumer: "a_consumer" }).await;
}
