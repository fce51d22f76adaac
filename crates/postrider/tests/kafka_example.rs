//! The example does what it says, with a topic and without.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../examples/consume_kafka.rs"]
mod consume_kafka;
#[path = "../../../examples/relay_kafka.rs"]
mod relay_kafka;

use postrider_testkit::{Kind, shared};
use std::process::Command;

async fn told(topic: &str) -> String {
    let mut out = Vec::new();
    relay_kafka::run(&shared::url(Kind::Kafka), topic, &mut out).await.unwrap();
    String::from_utf8(out).unwrap()
}

#[tokio::test]
async fn the_relay_publishes_what_was_committed_and_the_consumer_receives_it() {
    let topic = format!("t-{}", uuid::Uuid::now_v7().simple());
    let broker = shared::url(Kind::Kafka).replace("kafka://", "tcp://");
    let made = Command::new(shared::programs(Kind::Kafka).join("tansu"))
        .args(["topic", "create", "--broker", &broker, "--partitions", "1", &topic])
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let told = told(&topic).await;
    // This server does not tell how many replicas have to have a message.
    assert!(told.contains("not_visible: kafka-configs.sh"), "{told}");
    assert!(told.ends_with("2 published, 0 to be tried again\n"), "{told}");

    let mut out = Vec::new();
    consume_kafka::run(&shared::url(Kind::Kafka), &topic, &mut out).await.unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.ends_with("2 processed, 0 duplicates, 0 parked, 0 failed\n"), "{out}");
}

#[tokio::test]
async fn without_a_topic_it_says_so_and_publishes_nothing() {
    let told = told("nobody-made-this").await;
    assert!(told.starts_with("problem missing_topic: kafka-topics.sh --bootstrap-server"), "{told}");
    assert!(told.ends_with("0 published, 2 to be tried again\n"), "{told}");
}
