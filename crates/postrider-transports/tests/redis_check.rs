//! What a server would lose is told before anything is sent there. One test for each finding.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/redis.rs"]
mod server;
mod support;

use postrider_core::{
    Finding, PublishError,
    Severity::{self, Note, Problem, Warning},
    Transport,
};
use postrider_testkit::broker::Redis;
use postrider_transports::redis::{RedisBuilder, RedisTransport};
use server::run;
use std::time::Duration;
use support::{PATIENCE, soon, unused_port};

/// What a server needs to keep what it accepted.
const GOOD: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn builder(url: &str) -> RedisBuilder {
    RedisTransport::builder(url).with_answer_timeout(PATIENCE)
}

async fn check(builder: RedisBuilder) -> Vec<Finding> {
    let findings = soon(builder.build().unwrap().check(&["orders"])).await.unwrap();
    for finding in &findings {
        assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    }
    findings
}

fn codes(findings: &[Finding]) -> Vec<(Severity, &str)> {
    findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}

/// A good server but for these arguments has this finding.
async fn finds(arguments: &[&str], severity: Severity, code: &str) -> Finding {
    let server = Redis::start_with(&[&GOOD, arguments].concat()).await;
    let mut findings = check(builder(server.url())).await;
    assert_eq!(codes(&findings), [(severity, code)]);
    findings.remove(0)
}

/// A good server on which these commands were run has this finding.
async fn finds_after(commands: &[&str], change: fn(RedisBuilder) -> RedisBuilder, code: &str) {
    let server = Redis::start_with(&GOOD).await;
    for command in commands {
        run::<redis::Value>(server.url(), command).await;
    }
    assert_eq!(codes(&check(change(builder(server.url()))).await), [(Problem, code)]);
}

#[tokio::test]
async fn a_good_server_has_no_findings() {
    let server = Redis::start_with(&[&GOOD[..], &["--maxmemory", "100mb"]].concat()).await;
    assert_eq!(check(builder(server.url())).await, []);
    run::<String>(server.url(), "XADD orders * a b").await;
    assert_eq!(check(builder(server.url()).must_exist()).await, []);
}

#[tokio::test]
async fn a_server_that_removes_streams_is_told() {
    let limited = |policy| ["--maxmemory", "100mb", "--maxmemory-policy", policy];
    finds(&limited("allkeys-lru"), Problem, "eviction").await;
    finds(&limited("volatile-ttl"), Warning, "eviction").await;
    let unlimited = Redis::start_with(&[&GOOD[..], &["--maxmemory-policy", "allkeys-lru"]].concat()).await;
    assert_eq!(check(builder(unlimited.url())).await, []);
}

#[tokio::test]
async fn a_log_that_is_written_late_is_told() {
    let finding = finds(&["--appendfsync", "everysec"], Warning, "fsync").await;
    assert!(finding.reason.contains("everysec"), "{finding:?}");
    let finding = finds(&["--appendfsync", "no"], Warning, "fsync").await;
    assert!(finding.reason.contains("appendfsync is no:"), "{finding:?}");
}

#[tokio::test]
async fn a_server_without_a_log_is_told() {
    let finding = finds(&["--appendonly", "no"], Warning, "no_log").await;
    assert!(finding.reason.contains("a restart loses everything"), "{finding:?}");
    let finding = finds(&["--appendonly", "no", "--save", "3600", "1"], Warning, "no_log").await;
    assert!(finding.reason.contains("after the last snapshot"), "{finding:?}");
}

#[tokio::test]
async fn a_replica_is_told() {
    let primary = Redis::start().await;
    let port = primary.port().to_string();
    finds(&["--replicaof", "127.0.0.1", &port], Problem, "read_only").await;
}

#[tokio::test]
async fn fewer_replicas_than_are_waited_for_are_told() {
    finds_after(&[], |builder| builder.with_replicas(1, Duration::from_secs(1)), "few_replicas").await;
}

#[tokio::test]
async fn a_missing_stream_is_told_where_it_must_exist() {
    finds_after(&[], RedisBuilder::must_exist, "no_stream").await;
}

#[tokio::test]
async fn a_name_that_something_else_has_is_told() {
    finds_after(&["LPUSH orders a"], |builder| builder, "wrong_type").await;
}

#[tokio::test]
async fn a_stream_that_expires_is_told() {
    finds_after(&["XADD orders * a b", "EXPIRE orders 3600"], |builder| builder, "expires").await;
}

#[tokio::test]
async fn what_may_not_be_seen_is_told() {
    let server = Redis::start_with(&GOOD).await;
    run::<()>(server.url(), "ACL SETUSER ann on >pw ~* +@all -config").await;
    let url = server.url().replace("redis://", "redis://ann:pw@");
    let findings = check(builder(&url)).await;
    assert_eq!(codes(&findings), [(Note, "config_hidden")]);
    assert!(findings[0].reason.contains("appendfsync and save cannot be seen"), "{findings:?}");
    // What can be seen is told all the same.
    run::<()>(server.url(), "CONFIG SET appendonly no").await;
    assert_eq!(codes(&check(builder(&url)).await), [(Warning, "no_log"), (Note, "config_hidden")]);
}

#[tokio::test]
async fn a_server_that_is_not_there_cannot_be_asked() {
    let nowhere = builder(&format!("redis://127.0.0.1:{}", unused_port())).build().unwrap();
    let asked = soon(nowhere.check(&["orders"])).await;
    assert!(matches!(asked, Err(PublishError::Down { .. })), "{asked:?}");
}
