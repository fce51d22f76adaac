//! The transport's check reports settings that would lose messages. One test for each finding.
//!
//! Tansu stores and returns the settings of a topic, though it obeys few of them: enough to see that each setting is read.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka.rs"]
mod server;
mod support;

use postrider_core::{
    ClientOptions, Finding, PublishError,
    Severity::{self, Note, Problem, Warning},
    Transport,
};
use postrider_testkit::{Kind, documents, shared};
use postrider_transports::kafka::KafkaTransport;
use rdkafka::{mocking::MockCluster, types::RDKafkaRespErr};
use server::{Cluster, GOOD};
use std::time::Duration;
use support::{PATIENCE, soon, unused_port};

async fn check_at(url: &str, topic: &str, within: Duration) -> Vec<Finding> {
    let transport = KafkaTransport::connect(ClientOptions::new(url).with_connect_timeout(within)).unwrap();
    soon(transport.check(&[topic])).await.unwrap()
}

async fn check(topic: &str) -> Vec<Finding> {
    check_at(&shared::url(Kind::Kafka), topic, PATIENCE / 2).await
}

fn codes(findings: &[Finding]) -> Vec<(Severity, &str)> {
    findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}

/// A good topic with this setting changed has this finding.
async fn finds(setting: (&str, &str), severity: Severity, code: &str) {
    let mut settings = GOOD.to_vec();
    settings.retain(|(name, _)| *name != setting.0);
    settings.push(setting);
    let topic = Cluster::at(&shared::url(Kind::Kafka)).topic_with(1, 3, &settings).await;
    let findings = check(&topic).await;
    assert_eq!(codes(&findings), [(severity, code)], "{findings:?}");
    assert!(!findings[0].reason.is_empty() && findings[0].fix.contains(&topic), "{findings:?}");
}

#[tokio::test]
async fn check_of_good_topic_finds_nothing() {
    let topic = Cluster::at(&shared::url(Kind::Kafka)).topic().await;
    assert_eq!(check(&topic).await, []);
}

/// Debian has no `kafka-topics.sh`: the test creates the topic with the printed values, and does not know other flags.
#[tokio::test]
async fn topic_of_the_guide_has_no_finding() {
    let commands = documents::page("docs/guides/kafka.md").commands("kafka-topics.sh");
    let [command] = &commands[..] else { panic!("expected one command: {commands:?}") };
    let name = format!("t-{}", uuid::Uuid::now_v7().simple());
    let (mut partitions, mut replicas, mut settings) = (0, 0, Vec::new());
    let mut words = command.words[1..].iter();
    while let Some(flag) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{command}: {flag} has no value"));
        match flag.as_str() {
            "--create" => {}
            "--bootstrap-server" => assert!(value().contains(':'), "{command}"),
            "--topic" => assert_eq!(value(), "orders"),
            "--partitions" => partitions = value().parse().unwrap(),
            "--replication-factor" => replicas = value().parse().unwrap(),
            "--config" => settings.push(value().split_once('=').unwrap()),
            other => panic!("{command}: unexpected {other}"),
        }
    }
    // What the guide calls defaults of Kafka; Tansu has none.
    let defaults = GOOD.into_iter().filter(|(name, _)| *name != "min.insync.replicas");
    settings.extend(defaults);
    Cluster::at(&shared::url(Kind::Kafka)).create(&name, partitions, replicas, &settings).await;
    assert_eq!(check(&name).await, []);
}

#[tokio::test]
async fn check_reports_missing_topic() {
    let findings = check("nobody-made-this").await;
    assert_eq!(codes(&findings), [(Problem, "missing_topic")]);
    assert!(findings[0].fix.contains("--create --topic nobody-made-this"), "{findings:?}");
}

#[tokio::test]
async fn check_reports_invalid_topic_name() {
    assert_eq!(codes(&check("a b").await), [(Problem, "bad_topic")]);
}

#[tokio::test]
async fn check_reports_single_replica() {
    let mut settings = GOOD.to_vec();
    settings[0] = ("min.insync.replicas", "1");
    let topic = Cluster::at(&shared::url(Kind::Kafka)).topic_with(1, 1, &settings).await;
    assert_eq!(codes(&check(&topic).await), [(Warning, "single_replica")]);
}

#[tokio::test]
async fn check_reports_min_insync_replicas_of_one() {
    finds(("min.insync.replicas", "1"), Warning, "min_insync_replicas").await;
}

#[tokio::test]
async fn check_reports_min_insync_replicas_above_replicas() {
    finds(("min.insync.replicas", "4"), Problem, "too_few_replicas").await;
}

#[tokio::test]
async fn check_reports_unclean_leader_election() {
    finds(("unclean.leader.election.enable", "true"), Warning, "unclean_election").await;
}

#[tokio::test]
async fn check_reports_compaction() {
    finds(("cleanup.policy", "compact"), Problem, "compacted").await;
    finds(("cleanup.policy", "compact,delete"), Problem, "compacted").await;
}

#[tokio::test]
async fn check_reports_short_retention() {
    finds(("retention.ms", "3600000"), Warning, "short_retention").await;
}

#[tokio::test]
async fn check_reports_retention_bytes() {
    finds(("retention.bytes", "1000000"), Warning, "retention_bytes").await;
}

#[tokio::test]
async fn check_reports_smaller_max_message_bytes() {
    finds(("max.message.bytes", "1000"), Note, "max_message_bytes").await;
}

#[tokio::test]
async fn check_reports_hidden_settings() {
    let topic = Cluster::at(&shared::url(Kind::Kafka)).topic_with(1, 3, &[]).await;
    assert_eq!(codes(&check(&topic).await), [(Note, "not_visible")]);
}

/// The mock cluster returns no settings, and can leave a partition without a leader.
#[tokio::test]
async fn check_reports_partition_without_leader() {
    let mock = MockCluster::new(3).unwrap();
    mock.create_topic("orders", 4, 3).unwrap();
    // It never responds to requests that it does not know.
    let (url, within) = (mock.bootstrap_servers(), Duration::from_secs(3));
    assert_eq!(codes(&check_at(&url, "orders", within).await), [(Note, "not_visible")]);
    mock.partition_leader("orders", 2, None).unwrap();
    assert_eq!(
        codes(&check_at(&url, "orders", within).await),
        [(Problem, "no_leader"), (Note, "not_visible")]
    );
}

#[tokio::test]
async fn check_reports_topic_without_permission() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("orders", 1, 1).unwrap();
    mock.topic_error("orders", RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).unwrap();
    let findings = check_at(&mock.bootstrap_servers(), "orders", Duration::from_secs(3)).await;
    let denied = findings.iter().find(|finding| finding.code == "topic_denied").unwrap();
    assert_eq!(denied.severity, Problem);
    assert!(denied.fix.contains("--producer --topic orders"), "{findings:?}");
}

#[tokio::test]
async fn check_without_server_is_unavailable() {
    let transport = KafkaTransport::connect(format!("kafka://127.0.0.1:{}", unused_port())).unwrap();
    let result = soon(transport.check(&["orders"])).await;
    assert!(matches!(result, Err(PublishError::Unavailable { .. })), "{result:?}");
}
