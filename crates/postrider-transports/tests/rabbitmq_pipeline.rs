//! End to end: PostgreSQL → relay → RabbitMQ → consumer → PostgreSQL, while every process is killed.

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

/// Not a test: the body of the relay process, which does nothing unless it was started by the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn relay_process() {
    let transport = |url: String| async move {
        let transport: Arc<dyn Transport> = Arc::new(RabbitMqTransport::new(url).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(Format::Binary, transport).await;
}

/// Not a test: the body of the consumer process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn consumer_process() {
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
    // Handlers fail and processes die more often than the default delivery limit of a queue allows.
    let arguments = table([("x-queue-type", text("quorum")), ("x-delivery-limit", 1_000_000_i32.into())]);
    Rabbit::at(&url).await.declare("orders", durable(), arguments).await;
    // A broker writes definitions to disk a moment after it has confirmed them. A graceful stop writes them.
    broker.restart().await;
    pipeline::run(Killed::new(broker), Bodies { relay: "relay_process", consumer: "consumer_process" }).await;
}
