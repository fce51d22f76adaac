//! The broker examples on Kafka: with a topic, and without.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider_testkit::{Kind, shared};
use std::process::Command;
use support::{run, run_as_printed};

#[tokio::test]
async fn relay_publishes_committed_messages_and_consumer_processes_them() {
    let topic = format!("t-{}", uuid::Uuid::now_v7().simple());
    let url = shared::url(Kind::Kafka);
    let created = Command::new(shared::programs(Kind::Kafka).join("tansu"))
        .args([
            "topic",
            "create",
            "--broker",
            &url.replace("kafka://", "tcp://"),
            "--partitions",
            "1",
            &topic,
        ])
        .output()
        .unwrap();
    assert!(created.status.success(), "{created:?}");
    let printed = run_as_printed("kafka", "relay_broker", &url, &topic).await;
    // Tansu does not report how many replicas must have a message.
    assert!(printed.contains("not_visible: kafka-configs.sh"), "{printed}");
    assert!(printed.ends_with("2 published, 0 to be retried, 0 dead\n"), "{printed}");
    let printed = run_as_printed("kafka", "consume_broker", &url, &topic).await;
    assert!(printed.ends_with("2 processed, 0 duplicates\n"), "{printed}");
}

#[tokio::test]
async fn relay_without_a_topic_reports_the_problem_and_publishes_nothing() {
    let printed = run("relay_broker", &["kafka", &shared::url(Kind::Kafka), "nobody-made-this"]).await;
    assert!(printed.starts_with("problem missing_topic: kafka-topics.sh --bootstrap-server"), "{printed}");
    assert!(printed.ends_with("0 published, 2 to be retried, 0 dead\n"), "{printed}");
}
