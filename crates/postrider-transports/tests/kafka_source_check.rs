//! The source's check reports settings that would lose or repeat messages. One test for each finding.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka_source.rs"]
mod fixture;
#[path = "support/kafka.rs"]
mod server;
mod support;

use fixture::{builder, builder_within};
use postrider_core::{
    Finding,
    Severity::{self, Note, Problem, Warning},
    Source, SourceError,
};
use postrider_testkit::{Kind, shared};
use rdkafka::{mocking::MockCluster, types::RDKafkaRespErr};
use server::{Cluster, GOOD};
use std::time::Duration;
use support::{soon, unused_port};

async fn check(url: &str, topic: &str) -> Vec<Finding> {
    // The mock cluster never responds to requests that it does not know.
    let source = builder_within(url, topic, Duration::from_secs(3)).build().unwrap();
    let findings = soon(source.check()).await.unwrap();
    for finding in &findings {
        assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    }
    findings
}

fn codes(findings: &[Finding]) -> Vec<(Severity, &str)> {
    findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}

/// A good topic with this setting changed has this finding.
async fn finds(setting: (&str, &str), severity: Severity, code: &str) {
    let url = shared::url(Kind::Kafka);
    let mut settings = GOOD.to_vec();
    settings.retain(|(name, _)| *name != setting.0);
    settings.push(setting);
    let topic = Cluster::at(&url).topic_with(1, 3, &settings).await;
    assert_eq!(codes(&check(&url, &topic).await), [(severity, code)]);
}

#[tokio::test]
async fn check_of_good_topic_finds_nothing() {
    let url = shared::url(Kind::Kafka);
    let topic = Cluster::at(&url).topic().await;
    assert_eq!(check(&url, &topic).await, []);
}

#[tokio::test]
async fn check_reports_missing_topic() {
    let url = shared::url(Kind::Kafka);
    let findings = check(&url, "nobody-made-this").await;
    assert_eq!(codes(&findings), [(Problem, "missing_topic")]);
    assert!(findings[0].fix.contains("--create --topic nobody-made-this"), "{findings:?}");
    assert!(!Cluster::at(&url).exists("nobody-made-this").await, "the check created it");
}

#[tokio::test]
async fn check_reports_single_replica() {
    let url = shared::url(Kind::Kafka);
    let topic = Cluster::at(&url).topic_with(1, 1, &GOOD).await;
    assert_eq!(codes(&check(&url, &topic).await), [(Warning, "single_replica")]);
}

#[tokio::test]
async fn check_reports_compaction() {
    finds(("cleanup.policy", "compact"), Problem, "compacted").await;
}

#[tokio::test]
async fn check_reports_unclean_leader_election() {
    finds(("unclean.leader.election.enable", "true"), Warning, "unclean_election").await;
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
async fn check_reports_partition_without_leader() {
    let mock = MockCluster::new(3).unwrap();
    mock.create_topic("orders", 4, 3).unwrap();
    mock.partition_leader("orders", 2, None).unwrap();
    let findings = check(&mock.bootstrap_servers(), "orders").await;
    assert_eq!(codes(&findings), [(Problem, "no_leader"), (Note, "not_visible")]);
}

#[tokio::test]
async fn check_reports_topic_without_permission() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("orders", 1, 1).unwrap();
    mock.topic_error("orders", RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).unwrap();
    let findings = check(&mock.bootstrap_servers(), "orders").await;
    let denied = findings.iter().find(|finding| finding.code == "topic_denied").unwrap();
    assert_eq!(denied.severity, Problem);
    assert!(denied.fix.contains("--consumer --topic orders"), "{findings:?}");
}

#[tokio::test]
async fn redelivery_window_is_the_retention_of_the_topic() {
    let url = shared::url(Kind::Kafka);
    for (retention, within) in [("3600000", Some(Duration::from_secs(3_600))), ("-1", None)] {
        let topic = Cluster::at(&url).topic_with(1, 3, &[("retention.ms", retention)]).await;
        let window = soon(builder(&url, &topic).build().unwrap().redelivery_window()).await.unwrap();
        assert_eq!(window.within, within);
        assert_eq!(window.reason, format!("retention.ms = {retention} of the topic {topic}"));
    }
}

#[tokio::test]
async fn check_without_server_is_unavailable() {
    let url = format!("kafka://127.0.0.1:{}", unused_port());
    let source = builder_within(&url, "orders", Duration::from_secs(3)).build().unwrap();
    let asked = soon(source.check()).await;
    assert!(matches!(asked, Err(SourceError::Unavailable { .. })), "{asked:?}");
    let asked = soon(source.redelivery_window()).await;
    assert!(matches!(asked, Err(SourceError::Unavailable { .. })), "{asked:?}");
}
