//! What a consumer of NATS would lose is told. One test for each finding.

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
use nats_source::{DURABLE, builder, place, stream_of};
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
    let found = check(subject).await;
    let codes: Vec<_> = found.iter().map(|finding| (finding.severity, finding.code)).collect();
    assert_eq!(codes, [(severity, code)]);
}

/// A consumer that is changed so has this finding.
async fn finds_consumer(change: impl FnOnce(&mut pull::Config), severity: Severity, code: &str) {
    finds(&place(&url(), change).await, severity, code).await;
}

/// A stream that is changed so has this finding.
async fn finds_stream(change: impl FnOnce(&mut Config), severity: Severity, code: &str) {
    let (stream, subject) = stream(&url(), change).await;
    stream.create_consumer(nats_source::config()).await.unwrap();
    finds(&subject, severity, code).await;
}

#[tokio::test]
async fn a_good_place_has_no_findings() {
    assert_eq!(check(&place(&url(), |_| ()).await).await, []);
}

#[tokio::test]
async fn a_missing_stream_is_told() {
    finds("NOBODY.made.this", Problem, "missing_stream").await;
}

#[tokio::test]
async fn a_missing_consumer_is_told_unless_it_will_be_made() {
    let (_, subject) = stream(&url(), |_| ()).await;
    finds(&subject, Problem, "missing_consumer").await;
    let making = builder(&url(), &subject).with_created_consumer(">", AN_HOUR).build().unwrap();
    assert_eq!(making.check().await.unwrap(), []);
}

#[tokio::test]
async fn a_consumer_that_pushes_is_told() {
    let (stream, subject) = stream(&url(), |_| ()).await;
    let pushing = push::Config {
        durable_name: Some(DURABLE.to_owned()),
        deliver_subject: format!("push.{}", stream_of(&subject)),
        ..push::Config::default()
    };
    stream.create_consumer(pushing).await.unwrap();
    finds(&subject, Problem, "push_consumer").await;
    let error = builder(&url(), &subject).build().unwrap().receive(1).await.unwrap_err().to_string();
    assert!(error.contains("pull consumer"), "{error}");
}

#[tokio::test]
async fn one_answer_for_all_is_told() {
    finds_consumer(|config| config.ack_policy = AckPolicy::All, Problem, "ack_all").await;
}

#[tokio::test]
async fn messages_that_are_never_answered_are_told() {
    finds_consumer(|config| config.ack_policy = AckPolicy::None, Problem, "ack_none").await;
}

#[tokio::test]
async fn messages_that_are_stranded_are_told() {
    finds_consumer(|config| config.max_deliver = 5, Warning, "max_deliver").await;
}

#[tokio::test]
async fn messages_without_a_payload_are_told() {
    finds_consumer(|config| config.headers_only = true, Problem, "headers_only").await;
}

#[tokio::test]
async fn a_consumer_in_memory_is_told() {
    finds_consumer(|config| config.memory_storage = true, Warning, "memory_consumer").await;
}

#[tokio::test]
async fn a_consumer_that_goes_when_nobody_asks_is_told() {
    finds_consumer(|config| config.inactive_threshold = AN_HOUR, Warning, "expiring_consumer").await;
}

#[tokio::test]
async fn a_stream_that_removes_the_oldest_is_told() {
    let limited = |config: &mut Config| {
        (config.max_messages, config.discard) = (10, DiscardPolicy::Old);
    };
    finds_stream(limited, Problem, "discard_old").await;
}

#[tokio::test]
async fn a_stream_that_keeps_the_last_of_a_subject_is_told() {
    finds_stream(|config| config.max_messages_per_subject = 1, Problem, "discard_old").await;
}

#[tokio::test]
async fn a_stream_that_forgets_by_age_is_told() {
    finds_stream(|config| config.max_age = AN_HOUR, Warning, "max_age").await;
}

#[tokio::test]
async fn a_stream_in_memory_is_told() {
    finds_stream(|config| config.storage = StorageType::Memory, Warning, "memory_storage").await;
}

#[tokio::test]
async fn what_cannot_be_asked_is_an_error() {
    let nobody = format!("nats://127.0.0.1:{}", unused_port());
    let nobody = NatsSource::connect(nobody, "ORDERS", DURABLE).unwrap();
    assert!(matches!(nobody.check().await, Err(SourceError::Down { .. })));
}
