//! One test per finding of the NATS check.

#![cfg(feature = "nats")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/nats.rs"]
mod server;
mod support;

use async_nats::jetstream::{
    consumer::pull,
    stream::{Config, DiscardPolicy, RetentionPolicy, StorageType},
};
use postrider_core::{
    Finding, PublishError,
    Severity::{self, Note, Problem, Warning},
    Transport,
};
use postrider_testkit::{Kind, shared};
use postrider_transports::nats::NatsTransport;
use server::{context, stream};
use std::time::Duration;
use support::{PATIENCE, client, soon, unused_port};

fn transport() -> NatsTransport {
    NatsTransport::connect(client(shared::url(Kind::Nats), PATIENCE)).unwrap()
}

async fn check(subject: &str) -> Vec<Finding> {
    soon(transport().check(&[subject])).await.unwrap()
}

fn codes(findings: &[Finding]) -> Vec<(Severity, &str)> {
    findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}

/// The findings of every stream on a single server: no second replica, and an unknown sync interval.
const ALWAYS: [(Severity, &str); 2] = [(Note, "single_replica"), (Note, "sync_interval")];

/// A stream with this change has this finding, in addition to those of every stream on a single server.
async fn finds(change: impl FnOnce(&mut Config), severity: Severity, code: &str) -> Finding {
    let (_, subject) = stream(&shared::url(Kind::Nats), change).await;
    let mut findings = check(&subject).await;
    findings.retain(|finding| !ALWAYS.iter().any(|(_, always)| *always == finding.code));
    assert_eq!(codes(&findings), [(severity, code)]);
    let finding = findings.remove(0);
    assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    finding
}

#[tokio::test]
async fn good_stream_has_only_single_server_notes() {
    let (_, subject) = stream(&shared::url(Kind::Nats), |_| ()).await;
    assert_eq!(codes(&check(&subject).await), ALWAYS);
}

#[tokio::test]
async fn check_reports_subject_without_stream() {
    let findings = check("missing.stream.subject").await;
    assert_eq!(codes(&findings), [(Problem, "no_stream")]);
    assert!(findings[0].fix.starts_with("nats stream add MISSING"), "{findings:?}");
}

#[tokio::test]
async fn check_reports_invalid_subject() {
    assert_eq!(codes(&check("orders.*").await), [(Problem, "bad_subject")]);
}

#[tokio::test]
async fn check_reports_unexpected_stream() {
    let url = shared::url(Kind::Nats);
    let (_, subject) = stream(&url, |_| ()).await;
    let transport = NatsTransport::builder(url).with_stream("ELSEWHERE").build().unwrap();
    let findings = soon(transport.check(&[&subject])).await.unwrap();
    assert_eq!(codes(&findings)[0], (Problem, "other_stream"));
}

#[tokio::test]
async fn check_reports_discard_old() {
    let finding = finds(
        |config| (config.discard, config.max_messages) = (DiscardPolicy::Old, 5),
        Problem,
        "discard_old",
    );
    assert!(finding.await.reason.contains("max_msgs = 5"));
    let finding = finds(
        |config| (config.discard, config.max_bytes) = (DiscardPolicy::Old, 10_000),
        Problem,
        "discard_old",
    );
    assert!(finding.await.reason.contains("max_bytes = 10000"));
}

#[tokio::test]
async fn check_reports_per_subject_limit_despite_discard_new() {
    finds(|config| config.max_messages_per_subject = 1, Problem, "discard_old").await;
    let url = shared::url(Kind::Nats);
    let refuses = |config: &mut Config| {
        (config.max_messages_per_subject, config.discard_new_per_subject) = (1, true);
        // The server requires it together with the other setting.
        config.max_messages = 1_000;
    };
    let (_, subject) = stream(&url, refuses).await;
    assert_eq!(codes(&check(&subject).await), ALWAYS);
}

#[tokio::test]
async fn check_reports_max_age() {
    finds(|config| config.max_age = Duration::from_secs(3_600), Warning, "max_age").await;
}

#[tokio::test]
async fn check_notes_short_duplicate_window() {
    finds(|config| config.duplicate_window = Duration::from_secs(10), Note, "duplicate_window").await;
}

#[tokio::test]
async fn check_reports_memory_storage() {
    finds(|config| config.storage = StorageType::Memory, Warning, "memory_storage").await;
}

#[tokio::test]
async fn check_reports_no_ack() {
    finds(|config| config.no_ack = true, Problem, "no_ack").await;
}

#[tokio::test]
async fn check_reports_sealed_stream() {
    let url = shared::url(Kind::Nats);
    let (stream, subject) = stream(&url, |_| ()).await;
    let mut config = stream.cached_info().config.clone();
    config.sealed = true;
    context(&url).await.update_stream(config).await.unwrap();
    assert!(codes(&check(&subject).await).contains(&(Problem, "sealed")));
}

#[tokio::test]
async fn check_reports_interest_stream_without_consumer() {
    let url = shared::url(Kind::Nats);
    let (stream, subject) = stream(&url, |config| config.retention = RetentionPolicy::Interest).await;
    assert!(codes(&check(&subject).await).contains(&(Problem, "no_interest")));
    let consumer = pull::Config { durable_name: Some("reader".into()), ..pull::Config::default() };
    stream.create_consumer(consumer).await.unwrap();
    assert_eq!(codes(&check(&subject).await), ALWAYS);
}

#[tokio::test]
async fn check_of_unreachable_server_is_an_error() {
    let unreachable = NatsTransport::connect(format!("nats://127.0.0.1:{}", unused_port())).unwrap();
    let checked = soon(unreachable.check(&["orders"])).await;
    assert!(matches!(checked, Err(PublishError::Unavailable { .. })), "{checked:?}");
}
