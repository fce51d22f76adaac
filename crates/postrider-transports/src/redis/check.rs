//! What a server would lose, and how to mend it.

use super::link::RedisLink;
use postrider_core::{Finding, PublishError};
use redis::Value;
use std::collections::BTreeMap;

/// Everything that concerns these streams, as their writer sees them, and the server that holds them.
pub(super) async fn findings(
    link: &RedisLink,
    streams: &[&str],
    must_exist: bool,
    replicas: Option<u32>,
) -> Result<Vec<Finding>, PublishError> {
    let mut findings = Vec::new();
    for &stream in streams {
        findings.extend(of_stream(link, stream, must_exist).await?);
    }
    findings.extend(of_server(link, replicas).await?);
    Ok(findings)
}

/// What concerns every stream of a server.
pub(super) async fn of_server(link: &RedisLink, replicas: Option<u32>) -> Result<Vec<Finding>, PublishError> {
    let mut findings = Vec::new();
    let told = link.ask(&redis::cmd("INFO")).await?;
    let told = redis::from_redis_value::<String>(told).unwrap_or_default();
    let told: BTreeMap<&str, &str> = told.lines().filter_map(|line| line.split_once(':')).collect();
    let told = |name: &str| told.get(name).copied().unwrap_or_default();
    if told("role") == "slave" {
        findings.push(
            Finding::problem("read_only", "server")
                .because("it is a replica: it refuses everything")
                .fixed_by("give the URL of the primary, or of a name that follows it"),
        );
    }
    let attached = told("connected_slaves").parse().unwrap_or(0);
    if let Some(wanted) = replicas.filter(|wanted| *wanted > attached) {
        findings.push(
            Finding::problem("few_replicas", "server")
                .because(format!(
                    "{attached} replicas are attached and {wanted} are waited for: nothing is ever accepted"
                ))
                .fixed_by("attach replicas, or ask for fewer in `with_replicas`"),
        );
    }
    findings.extend(eviction(told("maxmemory"), told("maxmemory_policy")));
    let keeps_log = told("aof_enabled") == "1";
    match link.settings(&["appendfsync", "save"]).await {
        Ok(settings) => {
            let setting = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
            findings.extend(persistence(keeps_log, setting("appendfsync"), setting("save")));
        }
        Err(error) => {
            if !keeps_log {
                findings.push(no_log("whether it takes snapshots cannot be seen"));
            }
            findings.push(
                Finding::note("config_hidden", "server")
                    .because(format!(
                        "CONFIG is not permitted, so appendfsync and save cannot be seen: how much a crash loses is not known ({error})"
                    ))
                    .fixed_by("ACL SETUSER … +config|get, or look them up where the server is run"),
            );
        }
    }
    Ok(findings)
}

/// What concerns a stream, as long as it is one.
pub(super) async fn of_stream(
    link: &RedisLink,
    stream: &str,
    must_exist: bool,
) -> Result<Option<Finding>, PublishError> {
    let kind = match link.ask(redis::cmd("TYPE").arg(stream)).await? {
        Value::SimpleString(kind) => kind,
        _ => String::new(),
    };
    if kind == "none" {
        return Ok(must_exist.then(|| {
            Finding::problem("no_stream", stream)
                .because("there is no such stream, and it must exist: nothing can be published there")
                .fixed_by(format!("XGROUP CREATE {stream} readers $ MKSTREAM"))
        }));
    }
    if kind != "stream" {
        return Ok(Some(
            Finding::problem("wrong_type", stream)
                .because(format!("a {kind} has that name: everything is refused"))
                .fixed_by(format!("RENAMENX {stream} {stream}.before")),
        ));
    }
    let expires = matches!(link.ask(redis::cmd("PTTL").arg(stream)).await?, Value::Int(left) if left >= 0);
    Ok(expires.then(|| {
        Finding::problem("expires", stream)
            .because("it has a time to live: then it is gone, with everything in it")
            .fixed_by(format!("PERSIST {stream}"))
    }))
}

fn eviction(most: &str, policy: &str) -> Option<Finding> {
    if matches!(most, "" | "0") || policy == "noeviction" {
        return None;
    }
    let (finding, what) = match policy.starts_with("volatile") {
        true => (Finding::warning("eviction", "server"), "streams that have a time to live"),
        false => (Finding::problem("eviction", "server"), "whole streams"),
    };
    Some(
        finding
            .because(format!(
                "its memory is limited and its policy is {policy}: to make room it removes {what}, unread. With noeviction it refuses \
                 when it is full, and whoever writes tries again; write it to its configuration, too"
            ))
            .fixed_by("CONFIG SET maxmemory-policy noeviction"),
    )
}

fn persistence(keeps_log: bool, fsync: &str, save: &str) -> Option<Finding> {
    match (keeps_log, fsync) {
        (true, "always") => None,
        (true, fsync) => {
            let lost = if fsync == "everysec" { "about a second" } else { "half a minute" };
            Some(
                Finding::warning("fsync", "server")
                    .because(format!(
                        "appendfsync is {fsync}: a crash of the machine loses what was accepted in the last {lost}. Write it to its \
                         configuration, too"
                    ))
                    .fixed_by("CONFIG SET appendfsync always"),
            )
        }
        (false, _) if save.is_empty() => Some(no_log("it takes no snapshots: a restart loses everything")),
        (false, _) => Some(no_log("what came after the last snapshot is lost with a crash")),
    }
}

fn no_log(but: &str) -> Finding {
    Finding::warning("no_log", "server")
        .because(format!("it writes no append-only file; {but}. Write it to its configuration, too"))
        .fixed_by("CONFIG SET appendonly yes\nCONFIG SET appendfsync always")
}
