//! One test per finding of the Redis source check.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/redis_source.rs"]
mod fixture;
#[path = "support/redis.rs"]
mod server;
mod support;

use fixture::builder;
use postrider_core::{
    Finding,
    Severity::{self, Note, Problem, Warning},
    Source, SourceError,
};
use postrider_testkit::broker::Redis;
use postrider_transports::redis::RedisSourceBuilder;
use server::{connection, run};
use support::{soon, unused_port};

/// Settings of a server that keeps accepted messages.
const GOOD: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];
const GROUP: &str = "XGROUP CREATE orders billing 0 MKSTREAM";

async fn check(builder: RedisSourceBuilder) -> Vec<Finding> {
    let findings = soon(builder.build().unwrap().check()).await.unwrap();
    for finding in &findings {
        assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    }
    findings
}

fn codes(findings: &[Finding]) -> Vec<(Severity, &str)> {
    findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}

/// A good server with these arguments has this finding after these commands.
async fn finds(
    arguments: &[&str],
    commands: &[&str],
    change: fn(RedisSourceBuilder) -> RedisSourceBuilder,
    wanted: (Severity, &str),
) -> Finding {
    let server = Redis::start_with(&[&GOOD, arguments].concat()).await;
    for command in commands {
        run::<redis::Value>(server.url(), command).await;
    }
    let mut findings = check(change(builder(server.url(), "orders"))).await;
    assert_eq!(codes(&findings), [wanted]);
    findings.remove(0)
}

#[tokio::test]
async fn good_group_has_no_findings() {
    let server = Redis::start_with(&GOOD).await;
    let source = || builder(server.url(), "orders");
    assert_eq!(check(source().create_group()).await, []);
    run::<()>(server.url(), GROUP).await;
    assert_eq!(check(source()).await, []);
    // One entry is acked and deleted, one is pending, and one is not yet read.
    for command in [
        "XADD orders 1-1 a b",
        "XADD orders 1-2 a b",
        "XADD orders 1-3 a b",
        "XREADGROUP GROUP billing ann COUNT 2 STREAMS orders >",
        "XACK orders billing 1-1",
        "XDEL orders 1-1",
    ] {
        run::<redis::Value>(server.url(), command).await;
    }
    assert_eq!(check(source().with_delete_when_done()).await, []);
}

#[tokio::test]
async fn check_reports_missing_group() {
    let finding = finds(&[], &[], |builder| builder, (Problem, "no_group")).await;
    assert!(finding.fix.starts_with(GROUP), "{finding:?}");
    finds(&[], &["XGROUP CREATE orders other 0 MKSTREAM"], |builder| builder, (Problem, "no_group")).await;
}

#[tokio::test]
async fn check_reports_entries_trimmed_unread() {
    let commands = [GROUP, "XADD orders 1-1 a b", "XADD orders 1-2 a b", "XTRIM orders MAXLEN 1"];
    let finding = finds(&[], &commands, |builder| builder, (Problem, "trimmed_unread")).await;
    assert!(finding.reason.starts_with("at least 1 entries"), "{finding:?}");
}

#[tokio::test]
async fn check_reports_pending_entries_that_were_trimmed() {
    let commands =
        [GROUP, "XADD orders 1-1 a b", "XREADGROUP GROUP billing ann STREAMS orders >", "XDEL orders 1-1"];
    finds(&[], &commands, |builder| builder, (Problem, "trimmed_pending")).await;
    let more = [&commands[..], &["XADD orders 1-2 a b"]].concat();
    finds(&[], &more, |builder| builder, (Problem, "trimmed_pending")).await;
}

#[tokio::test]
async fn check_reports_delete_when_done_with_other_groups() {
    let commands = [GROUP, "XGROUP CREATE orders other 0"];
    finds(&[], &commands, RedisSourceBuilder::with_delete_when_done, (Problem, "deletes_for_others")).await;
}

#[tokio::test]
async fn check_notes_large_lag() {
    let server = Redis::start_with(&GOOD).await;
    run::<()>(server.url(), GROUP).await;
    let fill = "for i = 1, 100001 do redis.call('XADD', KEYS[1], '*', 'a', 'b') end";
    let mut filling = redis::cmd("EVAL");
    filling.arg(fill).arg(1).arg("orders");
    filling.query_async::<()>(&mut connection(server.url()).await).await.unwrap();
    assert_eq!(codes(&check(builder(server.url(), "orders")).await), [(Note, "group_lag")]);
}

/// Findings of the server and the stream concern publishers and consumers.
#[tokio::test]
async fn check_includes_findings_of_server_and_stream() {
    let same = |builder| builder;
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    finds(&evicting, &[GROUP], same, (Problem, "eviction")).await;
    finds(&["--appendfsync", "everysec"], &[GROUP], same, (Warning, "fsync")).await;
    finds(&["--appendonly", "no"], &[GROUP], same, (Warning, "no_append_only_file")).await;
    finds(&[], &[GROUP, "EXPIRE orders 3600"], same, (Problem, "expires")).await;
    finds(&[], &["LPUSH orders a"], same, (Problem, "wrong_type")).await;
}

#[tokio::test]
async fn check_of_unreachable_server_is_an_error() {
    let url = format!("redis://127.0.0.1:{}", unused_port());
    let unreachable = builder(&url, "orders").build().unwrap();
    let result = soon(unreachable.check()).await;
    assert!(matches!(result, Err(SourceError::Unavailable { .. })), "{result:?}");
    let result = soon(unreachable.redelivery_window()).await;
    assert!(matches!(result, Err(SourceError::Unavailable { .. })), "{result:?}");
}
