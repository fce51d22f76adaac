//! From one PostgreSQL through Redis Streams into another, while everything is killed.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/pipeline.rs"]
mod pipeline;

use async_trait::async_trait;
use pipeline::{Bodies, Broker};
use postrider_core::{Source, Transport};
use postrider_testkit::broker::Redis;
use postrider_transports::redis::{RedisSource, RedisTransport};
use std::{sync::Arc, time::Duration};
use tokio::sync::Mutex;

struct Killed(Mutex<Redis>, String);

#[async_trait]
impl Broker for Killed {
    fn told(&self) -> String {
        self.1.clone()
    }

    async fn kill_and_restart(&self) {
        let mut broker = self.0.lock().await;
        broker.kill();
        broker.restart().await;
    }
}

/// Not a test of its own: the body of the relay's process, which does nothing unless it is told what.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay() {
    let transport = |url: String| async move {
        let transport: Arc<dyn Transport> = Arc::new(RedisTransport::connect(url).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(transport).await;
}

/// Not a test of its own: the body of the consumer's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer() {
    let source = |url: String| async move {
        let builder = RedisSource::builder(url, "orders").with_group("billing").create_group();
        Arc::new(builder.with_hold(Duration::from_secs(2)).build().unwrap()) as Arc<dyn Source>
    };
    pipeline::consumer(source).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_has_one_effect_and_one_follow_up() {
    let broker = Redis::start().await;
    let url = broker.url().to_owned();
    pipeline::run(Killed(Mutex::new(broker), url), Bodies { relay: "a_relay", consumer: "a_consumer" }).await;
}
