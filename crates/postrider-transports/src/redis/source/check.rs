//! Checks the group and its stream for settings that lose messages.

use super::{entry_id::EntryId, group::ConsumerGroup};
use crate::redis::{check, connection::RedisConnection};
use postrider_core::{Finding, PublishError};
use redis::{FromRedisValue, Value};
use std::collections::HashMap;

/// A larger lag is reported.
const LAG_NOTE_THRESHOLD: u64 = 100_000;

pub(super) async fn findings(
    connection: &RedisConnection,
    group: &ConsumerGroup,
) -> Result<Vec<Finding>, PublishError> {
    let mut findings = Vec::new();
    let finding = check::stream_finding(connection, &group.stream, false).await?;
    let is_stream = finding.as_ref().is_none_or(|finding| finding.code != "wrong_type");
    findings.extend(finding);
    if is_stream {
        findings.extend(group_findings(connection, group).await?);
    }
    findings.extend(check::server_findings(connection, None).await?);
    Ok(findings)
}

async fn group_findings(
    connection: &RedisConnection,
    group: &ConsumerGroup,
) -> Result<Vec<Finding>, PublishError> {
    let subject = || format!("group {} of {}", group.name, group.stream);
    let groups = connection.send(redis::cmd("XINFO").arg("GROUPS").arg(&group.stream)).await;
    // No groups if the stream does not exist, or XINFO is not permitted.
    let groups: Vec<InfoMap> = groups.map_err(PublishError::unavailable).map(parse_info)?.unwrap_or_default();
    let Some(ours) = groups.iter().find(|other| other.get::<String>("name").as_ref() == Some(&group.name))
    else {
        return Ok(match group.created_at {
            Some(_) => Vec::new(),
            None => vec![
                Finding::problem("no_group", subject())
                    .because("the group does not exist: nothing can be received")
                    .fixed_by(format!("{}, or `create_group`", group.create_command_text())),
            ],
        });
    };
    let mut findings = Vec::new();
    if group.delete_when_done && groups.len() > 1 {
        findings.push(
            Finding::problem("deletes_for_others", subject())
                .because(format!(
                    "acked entries are deleted, and the stream has {} groups: the other groups miss entries that they have not read by then",
                    groups.len()
                ))
                .fixed_by("remove `with_delete_when_done`, and trim the stream up to the group that is furthest behind"),
        );
    }
    let stream: Option<InfoMap> = parse_info(
        connection
            .send(redis::cmd("XINFO").arg("STREAM").arg(&group.stream))
            .await
            .map_err(PublishError::unavailable)?,
    );
    if let Some(stream) = stream {
        findings.extend(removed(&stream, ours, group));
        findings.extend(pending_gone(connection, &stream, group).await?);
    }
    if let Some(lag) = ours.get::<u64>("lag").filter(|lag| *lag > LAG_NOTE_THRESHOLD) {
        findings.push(
            Finding::note("group_lag", subject())
                .because(format!(
                    "the group has a backlog of {lag} entries, all of them in the server's memory"
                ))
                .fixed_by("start more consumers of the group, or raise their concurrency"),
        );
    }
    Ok(findings)
}

/// More entries were removed than the group has read.
fn removed(stream: &InfoMap, ours: &InfoMap, group: &ConsumerGroup) -> Option<Finding> {
    let (added, length): (u64, u64) = (stream.get("entries-added")?, stream.get("length")?);
    // Redis counts from the first read of a group on.
    let is_new = ours.get::<String>("last-delivered-id").is_some_and(|last| last == "0-0");
    let read: u64 = ours.get("entries-read").or(is_new.then_some(0))?;
    let missed = added.saturating_sub(length).saturating_sub(read);
    (missed > 0).then(|| {
        Finding::problem("trimmed_unread", &group.stream)
            .because(format!("at least {missed} entries were removed before the group {} had read them", group.name))
            .fixed_by("do not use MAXLEN and MINID in XADD; trim only entries that every group has acknowledged: XTRIM … MINID")
    })
}

/// Pending entries were removed from the stream.
async fn pending_gone(
    connection: &RedisConnection,
    stream: &InfoMap,
    group: &ConsumerGroup,
) -> Result<Option<Finding>, PublishError> {
    let reply = connection.query(&group.command("XPENDING")).await?;
    let (count, first, ..): (u64, Option<String>, Value, Value) =
        redis::from_redis_value(reply).unwrap_or_default();
    let pending = first.and_then(|first| first.parse::<EntryId>().ok());
    let first_entry = stream.get::<Vec<Value>>("first-entry").and_then(|entry| entry.into_iter().next());
    let first_entry =
        first_entry.and_then(|id| redis::from_redis_value::<String>(id).ok()?.parse::<EntryId>().ok());
    let is_gone = match (pending, first_entry) {
        (Some(pending), Some(first_entry)) => pending < first_entry,
        (Some(_), None) => true,
        (None, _) => false,
    };
    Ok(is_gone.then(|| {
        Finding::problem("trimmed_pending", &group.stream)
            .because(format!("the first of {count} pending entries was removed from the stream: it cannot be redelivered"))
            .fixed_by("trim only entries that every group has acknowledged: XTRIM … MINID with the first id of XPENDING")
    }))
}

/// The reply of an XINFO command.
struct InfoMap(HashMap<String, Value>);

impl InfoMap {
    fn get<T: FromRedisValue>(&self, name: &str) -> Option<T> {
        redis::from_redis_value(self.0.get(name)?.clone()).ok()
    }
}

impl FromRedisValue for InfoMap {
    fn from_redis_value(value: Value) -> Result<Self, redis::ParsingError> {
        redis::from_redis_value(value).map(Self)
    }
}

/// The parsed reply; `None` for a server error.
fn parse_info<T: FromRedisValue>(value: Value) -> Option<T> {
    redis::from_redis_value(value).ok()
}
