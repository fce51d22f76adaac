//! End to end: PostgreSQL → relay → NATS JetStream → consumer → PostgreSQL, while every process is killed.

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

/// Not a test: the body of the relay process, which does nothing unless it was started by the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn relay_process() {
    let transport = |url: String| async move {
        let transport: Arc<dyn Transport> = Arc::new(NatsTransport::connect(url).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(Format::Binary, transport).await;
}

/// Not a test: the body of the consumer process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn consumer_process() {
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
    pipeline::run(Killed::new(broker), Bodies { relay: "relay_process", consumer: "consumer_process" }).await;
}
