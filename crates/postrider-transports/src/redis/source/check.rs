//! What a group would miss, and how to mend it.

use super::{group::Group, place::Place};
use crate::redis::{check, link::RedisLink};
use postrider_core::{Finding, PublishError};
use redis::{FromRedisValue, Value};
use std::collections::HashMap;

/// More than that is worth a word.
const BEHIND: u64 = 100_000;

pub(super) async fn findings(link: &RedisLink, group: &Group) -> Result<Vec<Finding>, PublishError> {
    let mut findings = Vec::new();
    let seen = check::of_stream(link, &group.stream, false).await?;
    let is_stream = seen.as_ref().is_none_or(|finding| finding.code != "wrong_type");
    findings.extend(seen);
    if is_stream {
        findings.extend(of_group(link, group).await?);
    }
    findings.extend(check::of_server(link, None).await?);
    Ok(findings)
}

async fn of_group(link: &RedisLink, group: &Group) -> Result<Vec<Finding>, PublishError> {
    let subject = || format!("group {} of {}", group.name, group.stream);
    let groups = link.send(redis::cmd("XINFO").arg("GROUPS").arg(&group.stream)).await;
    // There is no stream, or it may not be looked at.
    let groups: Vec<Told> = groups.map_err(PublishError::down).map(told)?.unwrap_or_default();
    let Some(ours) = groups.iter().find(|other| other.get::<String>("name").as_ref() == Some(&group.name))
    else {
        return Ok(match group.created_at {
            Some(_) => Vec::new(),
            None => vec![
                Finding::problem("no_group", subject())
                    .because("there is no such group, and it must exist: nothing can be received")
                    .fixed_by(format!("{}, or `create_group`", group.how_to_create())),
            ],
        });
    };
    let mut findings = Vec::new();
    if group.deletes && groups.len() > 1 {
        findings.push(
            Finding::problem("deletes_for_others", subject())
                .because(format!(
                    "what is done is deleted, and the stream has {} groups: the others never see what they have not read by then",
                    groups.len()
                ))
                .fixed_by("leave out `with_delete_when_done`, and trim the stream by the group that is furthest behind"),
        );
    }
    let stream: Option<Told> = told(
        link.send(redis::cmd("XINFO").arg("STREAM").arg(&group.stream)).await.map_err(PublishError::down)?,
    );
    if let Some(stream) = stream {
        findings.extend(removed(&stream, ours, group));
        findings.extend(pending_gone(link, &stream, group).await?);
    }
    if let Some(lag) = ours.get::<u64>("lag").filter(|lag| *lag > BEHIND) {
        findings.push(
            Finding::note("behind", subject())
                .because(format!("{lag} entries wait, all of them in the server's memory"))
                .fixed_by("start more consumers of the group, or let each handle more at once"),
        );
    }
    Ok(findings)
}

/// More has been removed than the group has ever read.
fn removed(stream: &Told, ours: &Told, group: &Group) -> Option<Finding> {
    let (added, length): (u64, u64) = (stream.get("entries-added")?, stream.get("length")?);
    // Redis counts from the first read on.
    let is_new = ours.get::<String>("last-delivered-id").is_some_and(|last| last == "0-0");
    let read: u64 = ours.get("entries-read").or(is_new.then_some(0))?;
    let missed = added.saturating_sub(length).saturating_sub(read);
    (missed > 0).then(|| {
        Finding::problem("trimmed_unread", &group.stream)
            .because(format!("at least {missed} entries were removed before the group {} had read them", group.name))
            .fixed_by("leave out MAXLEN and MINID where entries are added, and trim what every group has acknowledged: XTRIM … MINID")
    })
}

/// Entries are pending that are not there any more.
async fn pending_gone(
    link: &RedisLink,
    stream: &Told,
    group: &Group,
) -> Result<Option<Finding>, PublishError> {
    let answer = link.ask(&group.command("XPENDING")).await?;
    let (count, first, ..): (u64, Option<String>, Value, Value) =
        redis::from_redis_value(answer).unwrap_or_default();
    let pending = first.and_then(|first| first.parse::<Place>().ok());
    let there = stream.get::<Vec<Value>>("first-entry").and_then(|entry| entry.into_iter().next());
    let there = there.and_then(|place| redis::from_redis_value::<String>(place).ok()?.parse::<Place>().ok());
    let is_gone = match (pending, there) {
        (Some(pending), Some(there)) => pending < there,
        (Some(_), None) => true,
        (None, _) => false,
    };
    Ok(is_gone.then(|| {
        Finding::problem("trimmed_pending", &group.stream)
            .because(format!("the first of {count} entries that are in hand, or wait to come again, was removed: it cannot come again"))
            .fixed_by("trim what every group has acknowledged only: XTRIM … MINID with the first place of XPENDING")
    }))
}

/// Names, and what is said of them.
struct Told(HashMap<String, Value>);

impl Told {
    fn get<T: FromRedisValue>(&self, name: &str) -> Option<T> {
        redis::from_redis_value(self.0.get(name)?.clone()).ok()
    }
}

impl FromRedisValue for Told {
    fn from_redis_value(value: Value) -> Result<Self, redis::ParsingError> {
        redis::from_redis_value(value).map(Self)
    }
}

/// What was said, unless it is a refusal.
fn told<T: FromRedisValue>(value: Value) -> Option<T> {
    redis::from_redis_value(value).ok()
}
