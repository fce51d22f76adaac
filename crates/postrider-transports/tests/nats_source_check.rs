//! One test per finding of the NATS source check.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/nats_source.rs"]
mod nats_source;
#[path = "support/nats.rs"]
mod server;
mod support;

use async_nats::jetstream::{
    consumer::{AckPolicy, pull, push},
    stream::{Config, DiscardPolicy, StorageType},
};
use nats_source::{DURABLE, address, builder, stream_of};
use postrider_core::{
    Finding,
    Severity::{self, Problem, Warning},
    Source, SourceError,
};
use postrider_testkit::{Kind, shared};
use postrider_transports::nats::NatsSource;
use server::stream;
use std::time::Duration;
use support::{soon, unused_port};

const AN_HOUR: Duration = Duration::from_secs(3_600);

fn url() -> String {
    shared::url(Kind::Nats)
}

async fn check(subject: &str) -> Vec<Finding> {
    let findings = soon(builder(&url(), subject).build().unwrap().check()).await.unwrap();
    for finding in &findings {
        assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    }
    findings
}

async fn finds(subject: &str, severity: Severity, code: &str) {
    let findings = check(subject).await;
    let codes: Vec<_> = findings.iter().map(|finding| (finding.severity, finding.code)).collect();
    assert_eq!(codes, [(severity, code)]);
}

/// A consumer with this change has this finding.
async fn finds_consumer(change: impl FnOnce(&mut pull::Config), severity: Severity, code: &str) {
    finds(&address(&url(), change).await, severity, code).await;
}

/// A stream with this change has this finding.
async fn finds_stream(change: impl FnOnce(&mut Config), severity: Severity, code: &str) {
    let (stream, subject) = stream(&url(), change).await;
    stream.create_consumer(nats_source::config()).await.unwrap();
    finds(&subject, severity, code).await;
}

#[tokio::test]
async fn good_consumer_has_no_findings() {
    assert_eq!(check(&address(&url(), |_| ()).await).await, []);
}

#[tokio::test]
async fn check_reports_missing_stream() {
    finds("MISSING.stream.subject", Problem, "missing_stream").await;
}

#[tokio::test]
async fn check_reports_missing_consumer_unless_it_will_be_created() {
    let (_, subject) = stream(&url(), |_| ()).await;
    finds(&subject, Problem, "missing_consumer").await;
    let creating = builder(&url(), &subject).with_created_consumer(">", AN_HOUR).build().unwrap();
    assert_eq!(creating.check().await.unwrap(), []);
}

#[tokio::test]
async fn check_reports_push_consumer() {
    let (stream, subject) = stream(&url(), |_| ()).await;
    let push = push::Config {
        durable_name: Some(DURABLE.to_owned()),
        deliver_subject: format!("push.{}", stream_of(&subject)),
        ..push::Config::default()
    };
    stream.create_consumer(push).await.unwrap();
    finds(&subject, Problem, "push_consumer").await;
    let error = builder(&url(), &subject).build().unwrap().receive(1).await.unwrap_err().to_string();
    assert!(error.contains("pull consumer"), "{error}");
}

#[tokio::test]
async fn check_reports_ack_policy_all() {
    finds_consumer(|config| config.ack_policy = AckPolicy::All, Problem, "ack_all").await;
}

#[tokio::test]
async fn check_reports_ack_policy_none() {
    finds_consumer(|config| config.ack_policy = AckPolicy::None, Problem, "ack_none").await;
}

#[tokio::test]
async fn check_reports_max_deliver() {
    finds_consumer(|config| config.max_deliver = 5, Warning, "max_deliver").await;
}

#[tokio::test]
async fn check_reports_headers_only() {
    finds_consumer(|config| config.headers_only = true, Problem, "headers_only").await;
}

#[tokio::test]
async fn check_reports_memory_consumer() {
    finds_consumer(|config| config.memory_storage = true, Warning, "memory_consumer").await;
}

#[tokio::test]
async fn check_reports_inactive_threshold() {
    finds_consumer(|config| config.inactive_threshold = AN_HOUR, Warning, "expiring_consumer").await;
}

#[tokio::test]
async fn check_reports_discard_old() {
    let limited = |config: &mut Config| {
        (config.max_messages, config.discard) = (10, DiscardPolicy::Old);
    };
    finds_stream(limited, Problem, "discard_old").await;
}

#[tokio::test]
async fn check_reports_per_subject_limit() {
    finds_stream(|config| config.max_messages_per_subject = 1, Problem, "discard_old").await;
}

#[tokio::test]
async fn check_reports_max_age() {
    finds_stream(|config| config.max_age = AN_HOUR, Warning, "max_age").await;
}

#[tokio::test]
async fn check_reports_memory_storage() {
    finds_stream(|config| config.storage = StorageType::Memory, Warning, "memory_storage").await;
}

#[tokio::test]
async fn check_of_unreachable_server_is_an_error() {
    let url = format!("nats://127.0.0.1:{}", unused_port());
    let unreachable = NatsSource::connect(url, "ORDERS", DURABLE).unwrap();
    assert!(matches!(unreachable.check().await, Err(SourceError::Unavailable { .. })));
}
