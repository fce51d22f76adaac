//! One test per finding of the Redis check.

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
use postrider_testkit::{broker::Redis, documents};
use postrider_transports::redis::{RedisBuilder, RedisTransport};
use server::run;
use std::time::Duration;
use support::{PATIENCE, client, soon, unused_port};

/// Settings of a server that keeps accepted messages.
const GOOD: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

fn builder(url: &str) -> RedisBuilder {
    RedisTransport::builder(client(url, PATIENCE))
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

/// A good server with these additional arguments has this finding.
async fn finds(arguments: &[&str], severity: Severity, code: &str) -> Finding {
    let server = Redis::start_with(&[&GOOD, arguments].concat()).await;
    let mut findings = check(builder(server.url())).await;
    assert_eq!(codes(&findings), [(severity, code)]);
    findings.remove(0)
}

/// A good server has this finding after these commands.
async fn finds_after(commands: &[&str], change: fn(RedisBuilder) -> RedisBuilder, code: &str) {
    let server = Redis::start_with(&GOOD).await;
    for command in commands {
        run::<redis::Value>(server.url(), command).await;
    }
    assert_eq!(codes(&check(change(builder(server.url()))).await), [(Problem, code)]);
}

#[tokio::test]
async fn server_of_the_guide_has_no_findings() {
    let page = documents::page("docs/guides/redis.md");
    let settings = page.blocks().into_iter().find(|block| block.text.contains("appendfsync")).unwrap();
    let arguments: Vec<String> = settings
        .text
        .lines()
        .flat_map(|line| format!("--{line}").split(' ').map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let server = Redis::start_with(&arguments).await;
    assert_eq!(check(builder(server.url())).await, []);
}

#[tokio::test]
async fn good_server_has_no_findings() {
    let server = Redis::start_with(&[&GOOD[..], &["--maxmemory", "100mb"]].concat()).await;
    assert_eq!(check(builder(server.url())).await, []);
    run::<String>(server.url(), "XADD orders * a b").await;
    assert_eq!(check(builder(server.url()).must_exist()).await, []);
}

#[tokio::test]
async fn check_reports_eviction_policy() {
    let limited = |policy| ["--maxmemory", "100mb", "--maxmemory-policy", policy];
    finds(&limited("allkeys-lru"), Problem, "eviction").await;
    finds(&limited("volatile-ttl"), Warning, "eviction").await;
    let unlimited = Redis::start_with(&[&GOOD[..], &["--maxmemory-policy", "allkeys-lru"]].concat()).await;
    assert_eq!(check(builder(unlimited.url())).await, []);
}

#[tokio::test]
async fn check_reports_late_fsync() {
    let finding = finds(&["--appendfsync", "everysec"], Warning, "fsync").await;
    assert!(finding.reason.contains("everysec"), "{finding:?}");
    let finding = finds(&["--appendfsync", "no"], Warning, "fsync").await;
    assert!(finding.reason.contains("appendfsync is no:"), "{finding:?}");
}

#[tokio::test]
async fn check_reports_missing_append_only_file() {
    let finding = finds(&["--appendonly", "no"], Warning, "no_append_only_file").await;
    assert!(finding.reason.contains("a restart loses every message"), "{finding:?}");
    let finding = finds(&["--appendonly", "no", "--save", "3600", "1"], Warning, "no_append_only_file").await;
    assert!(finding.reason.contains("since the last snapshot"), "{finding:?}");
}

#[tokio::test]
async fn check_reports_replica() {
    let primary = Redis::start().await;
    let port = primary.port().to_string();
    finds(&["--replicaof", "127.0.0.1", &port], Problem, "read_only").await;
}

#[tokio::test]
async fn check_reports_too_few_replicas() {
    finds_after(&[], |builder| builder.with_replicas(1, Duration::from_secs(1)), "few_replicas").await;
}

#[tokio::test]
async fn check_reports_missing_stream_if_it_must_exist() {
    finds_after(&[], RedisBuilder::must_exist, "no_stream").await;
}

#[tokio::test]
async fn check_reports_key_of_another_type() {
    finds_after(&["LPUSH orders a"], |builder| builder, "wrong_type").await;
}

#[tokio::test]
async fn check_reports_stream_with_ttl() {
    finds_after(&["XADD orders * a b", "EXPIRE orders 3600"], |builder| builder, "expires").await;
}

#[tokio::test]
async fn check_without_config_permission_returns_a_note() {
    let server = Redis::start_with(&GOOD).await;
    run::<()>(server.url(), "ACL SETUSER ann on >pw ~* +@all -config").await;
    let url = server.url().replace("redis://", "redis://ann:pw@");
    let findings = check(builder(&url)).await;
    assert_eq!(codes(&findings), [(Note, "config_hidden")]);
    assert!(findings[0].reason.contains("appendfsync and save are not visible"), "{findings:?}");
    // Visible settings are still reported.
    run::<()>(server.url(), "CONFIG SET appendonly no").await;
    assert_eq!(
        codes(&check(builder(&url)).await),
        [(Warning, "no_append_only_file"), (Note, "config_hidden")]
    );
}

#[tokio::test]
async fn check_of_unreachable_server_is_an_error() {
    let unreachable = builder(&format!("redis://127.0.0.1:{}", unused_port())).build().unwrap();
    let checked = soon(unreachable.check(&["orders"])).await;
    assert!(matches!(checked, Err(PublishError::Unavailable { .. })), "{checked:?}");
}
