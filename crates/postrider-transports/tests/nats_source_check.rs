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
    Source, SourceError, Transport,
};
use postrider_testkit::{
    Kind,
    documents::{self, PrintedCommand},
    shared,
};
use postrider_transports::nats::{NatsSource, NatsTransport};
use server::{context, stream};
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

/// Calls `apply` with each flag of the guide's only command that begins with these words, and with its value.
fn apply_flags(begin: &str, mut apply: impl FnMut(&str, &str)) {
    let commands = documents::page("docs/guides/nats.md").commands(begin);
    let [command] = &commands[..] else { panic!("expected one command: {commands:?}") };
    let PrintedCommand { words, .. } = command;
    let mut words = words.iter().skip_while(|word| !word.starts_with("--")).peekable();
    while let Some(flag) = words.next() {
        match flag.split_once('=') {
            Some((flag, value)) => apply(flag, value),
            None => apply(
                flag,
                words.next_if(|next| !next.starts_with("--")).map(String::as_str).unwrap_or_default(),
            ),
        }
    }
}

/// Debian has no `nats` tool: the test creates the stream and the consumer with the printed values, and does not know other flags.
#[tokio::test]
async fn stream_and_consumer_of_the_guide_have_no_findings_but_those_of_a_single_server() {
    let name = format!("T{}", uuid::Uuid::now_v7().simple());
    let mut stream = Config { name: name.clone(), ..Config::default() };
    apply_flags("nats stream add ORDERS", |flag, value| match (flag, value) {
        ("--subjects", "orders.>") => stream.subjects = vec![format!("{name}.>")],
        ("--storage", "file") => stream.storage = StorageType::File,
        ("--discard", "new") => stream.discard = DiscardPolicy::New,
        ("--dupe-window", "10m") => stream.duplicate_window = Duration::from_secs(600),
        // The server of the test has no peers.
        ("--replicas", "3") | ("--defaults", "") => {}
        other => panic!("unexpected {other:?}"),
    });
    let mut consumer = pull::Config { durable_name: Some(DURABLE.to_owned()), ..pull::Config::default() };
    apply_flags("nats consumer add ORDERS billing", |flag, value| match (flag, value) {
        ("--ack", "explicit") => consumer.ack_policy = AckPolicy::Explicit,
        ("--max-deliver", value) => consumer.max_deliver = value.parse().unwrap(),
        ("--pull", "") => {}
        other => panic!("unexpected {other:?}"),
    });
    let stream = context(&url()).await.create_stream(stream).await.unwrap();
    stream.create_consumer(consumer).await.unwrap();

    let subject = format!("{name}.placed");
    let transport = NatsTransport::builder(url()).build().unwrap();
    let found = soon(transport.check(&[&subject])).await.unwrap();
    let found: Vec<_> = found.iter().map(|finding| finding.code).collect();
    assert_eq!(found, ["single_replica", "sync_interval"]);
    assert_eq!(check(&subject).await, []);
}
