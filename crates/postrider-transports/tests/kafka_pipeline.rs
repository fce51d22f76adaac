//! Pipeline from one PostgreSQL through Kafka into another, while all processes are killed.
//!
//! The broker is Tansu 0.6, which is killed, too. The consumer is a static member of its group: each process that replaces a
//! killed one has its name, and so its partitions. Without a name the test would depend on how Tansu removes dead members. If the leader of a group is
//! considered dead between another member's join and sync, Tansu mistakes the empty list of that member for the leader's, and no member
//! has a partition any more.
//!
//! Two settings avoid weaknesses of Tansu. It responds to a fetch with all records, regardless of a partition's limit, unless the whole response has
//! one; and it scans the headers of all records for those of one. So responses are small, and attributes travel in the body.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/pipeline.rs"]
mod pipeline;
#[path = "support/kafka.rs"]
mod server;

use pipeline::{Bodies, Killed};
use postrider_core::{Format, Source, Transport};
use postrider_testkit::broker::Kafka;
use postrider_transports::kafka::{KafkaSource, KafkaTransport};
use std::sync::Arc;

/// Not a test of its own: the body of the relay's process, which does nothing without its environment variables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn a_relay() {
    let transport = |url: String| async move {
        let transport: Arc<dyn Transport> = Arc::new(KafkaTransport::connect(url).unwrap());
        (transport, "orders".to_owned())
    };
    pipeline::relay(Format::Structured, transport).await;
}

/// Not a test of its own: the body of the consumer's process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn a_consumer() {
    let source = |url: String| async move {
        let builder = KafkaSource::builder(url, "orders").with_group("billing").with_instance("billing-1");
        let builder =
            builder.with_property("message.max.bytes", "65536").with_property("fetch.max.bytes", "65536");
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
