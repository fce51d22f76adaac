//! What a group would miss is told before it is missed. One test for each finding.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka_source.rs"]
mod fixture;
#[path = "support/kafka.rs"]
mod server;
mod support;

use fixture::builder;
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
    // The mock cluster never answers to what it does not know.
    let source = builder(url, topic).with_connect_timeout(Duration::from_secs(3)).build().unwrap();
    let findings = soon(source.check()).await.unwrap();
    for finding in &findings {
        assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    }
    findings
}

fn codes(findings: &[Finding]) -> Vec<(Severity, &str)> {
    findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}

/// A good topic but for this setting has this finding.
async fn finds(setting: (&str, &str), severity: Severity, code: &str) {
    let url = shared::url(Kind::Kafka);
    let mut settings = GOOD.to_vec();
    settings.retain(|(name, _)| *name != setting.0);
    settings.push(setting);
    let topic = Cluster::at(&url).topic_with(1, 3, &settings).await;
    assert_eq!(codes(&check(&url, &topic).await), [(severity, code)]);
}

#[tokio::test]
async fn a_good_topic_has_no_findings() {
    let url = shared::url(Kind::Kafka);
    let topic = Cluster::at(&url).topic().await;
    assert_eq!(check(&url, &topic).await, []);
}

#[tokio::test]
async fn a_missing_topic_is_told() {
    let url = shared::url(Kind::Kafka);
    let findings = check(&url, "nobody-made-this").await;
    assert_eq!(codes(&findings), [(Problem, "missing_topic")]);
    assert!(findings[0].fix.contains("--create --topic nobody-made-this"), "{findings:?}");
    assert!(!Cluster::at(&url).exists("nobody-made-this").await, "looking has made it");
}

#[tokio::test]
async fn a_topic_that_one_broker_has_is_told() {
    let url = shared::url(Kind::Kafka);
    let topic = Cluster::at(&url).topic_with(1, 1, &GOOD).await;
    assert_eq!(codes(&check(&url, &topic).await), [(Warning, "single_replica")]);
}

#[tokio::test]
async fn a_topic_that_keeps_the_last_of_a_key_is_told() {
    finds(("cleanup.policy", "compact"), Problem, "compacted").await;
}

#[tokio::test]
async fn an_election_that_loses_messages_is_told() {
    finds(("unclean.leader.election.enable", "true"), Warning, "unclean_election").await;
}

#[tokio::test]
async fn a_topic_that_removes_messages_soon_is_told() {
    finds(("retention.ms", "3600000"), Warning, "short_retention").await;
}

#[tokio::test]
async fn a_topic_that_removes_messages_when_it_is_full_is_told() {
    finds(("retention.bytes", "1000000"), Warning, "retention_bytes").await;
}

#[tokio::test]
async fn a_partition_that_nobody_leads_is_told() {
    let mock = MockCluster::new(3).unwrap();
    mock.create_topic("orders", 4, 3).unwrap();
    mock.partition_leader("orders", 2, None).unwrap();
    let findings = check(&mock.bootstrap_servers(), "orders").await;
    assert_eq!(codes(&findings), [(Problem, "no_leader"), (Note, "not_visible")]);
}

#[tokio::test]
async fn a_topic_that_is_not_shown_to_us_is_told() {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic("orders", 1, 1).unwrap();
    mock.topic_error("orders", RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED).unwrap();
    let findings = check(&mock.bootstrap_servers(), "orders").await;
    let refused = findings.iter().find(|finding| finding.code == "refused").unwrap();
    assert_eq!(refused.severity, Problem);
    assert!(refused.fix.contains("--consumer --topic orders"), "{findings:?}");
}

#[tokio::test]
async fn how_long_messages_can_come_again_is_asked_for() {
    let url = shared::url(Kind::Kafka);
    for (retention, within) in [("3600000", Some(Duration::from_secs(3_600))), ("-1", None)] {
        let topic = Cluster::at(&url).topic_with(1, 3, &[("retention.ms", retention)]).await;
        let told = soon(builder(&url, &topic).build().unwrap().redelivers()).await.unwrap();
        assert_eq!(told.within, within);
        assert_eq!(told.because, format!("retention.ms = {retention} of the topic {topic}"));
    }
}

#[tokio::test]
async fn nobody_to_ask_is_down() {
    let url = format!("kafka://127.0.0.1:{}", unused_port());
    let source = builder(&url, "orders").with_connect_timeout(Duration::from_secs(3)).build().unwrap();
    let asked = soon(source.check()).await;
    assert!(matches!(asked, Err(SourceError::Down { .. })), "{asked:?}");
    let asked = soon(source.redelivers()).await;
    assert!(matches!(asked, Err(SourceError::Down { .. })), "{asked:?}");
}
