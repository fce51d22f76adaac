//! End to end: PostgreSQL → relay → Redis Streams → consumer → PostgreSQL, while every process is killed.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/pipeline.rs"]
mod pipeline;

use pipeline::{Bodies, Killed};
use postrider_core::{Format, Source, Transport};
use postrider_testkit::broker::Redis;
use postrider_transports::redis::{RedisSource, RedisTransport};
use std::{sync::Arc, time::Duration};

/// Not a test: the body of the relay process, which does nothing unless it was started by the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn relay_process() {
    let transport = |url: String| async move {
        let transport: Arc<dyn Transport> = Arc::new(RedisTransport::connect(url).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(Format::Binary, transport).await;
}

/// Not a test: the body of the consumer process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn consumer_process() {
    let source = |url: String| async move {
        let builder = RedisSource::builder(url, "orders").with_group("billing").create_group();
        Arc::new(builder.with_ack_deadline(Duration::from_secs(2)).build().unwrap()) as Arc<dyn Source>
    };
    pipeline::consumer(source).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_has_one_effect_and_one_follow_up() {
    let broker = Redis::start().await;
    pipeline::run(Killed::new(broker), Bodies { relay: "relay_process", consumer: "consumer_process" }).await;
}
