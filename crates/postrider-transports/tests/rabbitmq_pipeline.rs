//! From one PostgreSQL through RabbitMQ into another, while everything is killed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/pipeline.rs"]
mod pipeline;
#[path = "support/rabbit.rs"]
mod rabbit;

use pipeline::{Bodies, Killed};
use postrider_core::{Format, Source, Transport};
use postrider_testkit::broker::RabbitMq;
use postrider_transports::rabbitmq::{RabbitMqSource, RabbitMqTransport};
use rabbit::{Rabbit, durable, table, text};
use std::sync::Arc;

/// Not a test of its own: the body of the relay's process, which does nothing unless it is told what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay() {
    let transport = |url: String| async move {
        let transport: Arc<dyn Transport> = Arc::new(RabbitMqTransport::new(url).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(Format::Binary, transport).await;
}

/// Not a test of its own: the body of the consumer's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer() {
    let source = |url: String| async move {
        let builder = RabbitMqSource::builder(url, "orders").with_quorum(true);
        Arc::new(builder.build().unwrap()) as Arc<dyn Source>
    };
    pipeline::consumer(source).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_has_one_effect_and_one_follow_up() {
    let mut broker = RabbitMq::start().await;
    let url = broker.url().to_owned();
    // Handlers fail and processes die more often than a queue allows unless it is told otherwise.
    let arguments = table([("x-queue-type", text("quorum")), ("x-delivery-limit", 1_000_000_i32.into())]);
    Rabbit::at(&url).await.declare("orders", durable(), arguments).await;
    // A broker writes definitions to its disk a moment after it has said that they are there. One that is stopped has.
    broker.restart().await;
    pipeline::run(Killed::new(broker), Bodies { relay: "a_relay", consumer: "a_consumer" }).await;
}
