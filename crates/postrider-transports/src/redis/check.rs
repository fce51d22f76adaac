//! Checks server and streams for settings that lose messages.

use super::connection::RedisConnection;
use postrider_core::{Finding, PublishError};
use redis::Value;
use std::collections::BTreeMap;

/// The findings for these streams, as a publisher sees them, and for their server.
pub(super) async fn findings(
    connection: &RedisConnection,
    streams: &[&str],
    must_exist: bool,
    replicas: Option<u32>,
) -> Result<Vec<Finding>, PublishError> {
    let mut findings = Vec::new();
    for &stream in streams {
        findings.extend(stream_finding(connection, stream, must_exist).await?);
    }
    findings.extend(server_findings(connection, replicas).await?);
    Ok(findings)
}

/// Findings for the server.
pub(super) async fn server_findings(
    connection: &RedisConnection,
    replicas: Option<u32>,
) -> Result<Vec<Finding>, PublishError> {
    let mut findings = Vec::new();
    let info = connection.query(&redis::cmd("INFO")).await?;
    let info = redis::from_redis_value::<String>(info).unwrap_or_default();
    let info: BTreeMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let info = |name: &str| info.get(name).copied().unwrap_or_default();
    if info("role") == "slave" {
        findings.push(
            Finding::problem("read_only", "server")
                .because("the server is a replica: it refuses every message")
                .fixed_by("configure the URL of the primary, or a host name that follows the primary"),
        );
    }
    let attached = info("connected_slaves").parse().unwrap_or(0);
    if let Some(wanted) = replicas.filter(|wanted| *wanted > attached) {
        findings.push(
            Finding::problem("few_replicas", "server")
                .because(format!(
                    "{attached} replicas are attached, but `with_replicas` requires {wanted}: no message is ever accepted"
                ))
                .fixed_by("attach replicas, or require fewer in `with_replicas`"),
        );
    }
    findings.extend(eviction(info("maxmemory"), info("maxmemory_policy")));
    let has_aof = info("aof_enabled") == "1";
    match connection.config_get(&["appendfsync", "save"]).await {
        Ok(settings) => {
            let setting = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
            findings.extend(persistence(has_aof, setting("appendfsync"), setting("save")));
        }
        Err(error) => {
            if !has_aof {
                findings.push(no_aof("its snapshot settings are not visible"));
            }
            findings.push(
                Finding::note("config_hidden", "server")
                    .because(format!(
                        "CONFIG is not permitted, so appendfsync and save are not visible: it is unknown how much a crash loses ({error})"
                    ))
                    .fixed_by("ACL SETUSER … +config|get, or look them up at the server"),
            );
        }
    }
    Ok(findings)
}

/// The finding for a stream.
pub(super) async fn stream_finding(
    connection: &RedisConnection,
    stream: &str,
    must_exist: bool,
) -> Result<Option<Finding>, PublishError> {
    let kind = match connection.query(redis::cmd("TYPE").arg(stream)).await? {
        Value::SimpleString(kind) => kind,
        _ => String::new(),
    };
    if kind == "none" {
        return Ok(must_exist.then(|| {
            Finding::problem("no_stream", stream)
                .because("the stream does not exist, and `must_exist` is set: nothing can be published to it")
                .fixed_by(format!("XGROUP CREATE {stream} readers $ MKSTREAM"))
        }));
    }
    if kind != "stream" {
        return Ok(Some(
            Finding::problem("wrong_type", stream)
                .because(format!("a {kind} has this name: the server refuses every message"))
                .fixed_by(format!("RENAMENX {stream} {stream}.before")),
        ));
    }
    let expires =
        matches!(connection.query(redis::cmd("PTTL").arg(stream)).await?, Value::Int(left) if left >= 0);
    Ok(expires.then(|| {
        Finding::problem("expires", stream)
            .because("the stream has a TTL: when it expires, the stream is deleted with all its entries")
            .fixed_by(format!("PERSIST {stream}"))
    }))
}

fn eviction(max_memory: &str, policy: &str) -> Option<Finding> {
    if matches!(max_memory, "" | "0") || policy == "noeviction" {
        return None;
    }
    let (finding, evicted) = match policy.starts_with("volatile") {
        true => (Finding::warning("eviction", "server"), "streams that have a TTL"),
        false => (Finding::problem("eviction", "server"), "whole streams"),
    };
    Some(
        finding
            .because(format!(
                "maxmemory is set and maxmemory-policy is {policy}: above the limit the server evicts {evicted}, unread. With noeviction a full \
                 server refuses new messages, and the relay retries; set it in the configuration file, too"
            ))
            .fixed_by("CONFIG SET maxmemory-policy noeviction"),
    )
}

fn persistence(has_aof: bool, fsync: &str, save: &str) -> Option<Finding> {
    match (has_aof, fsync) {
        (true, "always") => None,
        (true, fsync) => {
            let lost = if fsync == "everysec" { "about a second" } else { "half a minute" };
            Some(
                Finding::warning("fsync", "server")
                    .because(format!(
                        "appendfsync is {fsync}: a crash of the machine loses the messages accepted in the last {lost}. Set it in the \
                         configuration file, too"
                    ))
                    .fixed_by("CONFIG SET appendfsync always"),
            )
        }
        (false, _) if save.is_empty() => Some(no_aof("it takes no snapshots: a restart loses every message")),
        (false, _) => Some(no_aof("a crash loses the messages accepted since the last snapshot")),
    }
}

fn no_aof(but: &str) -> Finding {
    Finding::warning("no_append_only_file", "server")
        .because(format!(
            "the server writes no append-only file; {but}. Set it in the configuration file, too"
        ))
        .fixed_by("CONFIG SET appendonly yes\nCONFIG SET appendfsync always")
}
