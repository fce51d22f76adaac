//! What a stream would lose, and how to mend it.

use super::{answer, link::NatsLink, wire};
use async_nats::jetstream::{
    context::GetStreamByNameErrorKind,
    stream::{Config, DiscardPolicy, Info, PersistenceMode, RetentionPolicy, StorageType},
};
use postrider_core::{Finding, PublishError};
use std::{collections::BTreeSet, time::Duration};

/// The server's own default. A relay's retries are seldom all within less.
const USEFUL_WINDOW: Duration = Duration::from_secs(120);

/// Everything that concerns these subjects.
pub(super) async fn findings(
    link: &NatsLink,
    subjects: &[&str],
    expected: Option<&str>,
) -> Result<Vec<Finding>, PublishError> {
    let (mut findings, mut streams) = (Vec::new(), BTreeSet::new());
    for &subject in subjects {
        if let Err(wrong) = wire::check_subject(subject) {
            let fix = "write a subject such as orders.placed";
            findings.push(Finding::problem("bad_subject", subject).because(wrong).fixed_by(fix));
            continue;
        }
        let stream = match link.context.stream_by_subject(subject).await {
            Ok(stream) => stream,
            Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => {
                findings.push(
                    Finding::problem("no_stream", subject)
                        .because("no stream holds it: nothing can be published there")
                        .fixed_by(answer::create(subject)),
                );
                continue;
            }
            Err(error) => return Err(cannot_ask(&error)),
        };
        if let Some(expected) = expected.filter(|expected| *expected != stream) {
            findings.push(
                Finding::problem("other_stream", subject)
                    .because(format!("{stream} holds it, and {expected} is expected: everything is refused"))
                    .fixed_by(format!("give `with_stream` the name {stream}, or move the subject")),
            );
        }
        streams.insert(stream);
    }
    for name in &streams {
        let stream = link.context.get_stream(name).await.map_err(|error| cannot_ask(&error))?;
        findings.extend(of_stream(stream.cached_info()));
    }
    if !streams.is_empty() {
        findings.push(
            Finding::note("sync_interval", "server")
                .because(
                    "the server acknowledges what it has written and not synced, for two minutes unless told otherwise; \
                     it does not say how it is set. What a power failure takes with it was acknowledged",
                )
                .fixed_by("set jetstream { sync_interval: always } in the configuration of the servers"),
        );
    }
    Ok(findings)
}

fn cannot_ask(error: &dyn std::fmt::Display) -> PublishError {
    PublishError::retry(format!("JetStream cannot be asked about its streams: {error}"))
}

fn of_stream(info: &Info) -> Vec<Finding> {
    let mut findings = of_config(&info.config);
    let name = info.config.name.as_str();
    if info.config.retention == RetentionPolicy::Interest && info.state.consumer_count == 0 {
        findings.push(
            Finding::problem("no_interest", name)
                .because("it keeps what consumers wait for, and there is none: everything is acknowledged and gone")
                .fixed_by(format!("nats consumer add {name}, or make the stream with --retention limits")),
        );
    }
    findings
}

/// How a stream loses messages that it has.
pub(super) fn losing(config: &Config) -> Vec<Finding> {
    let name = config.name.as_str();
    let edit = |what: &str| format!("nats stream edit {name} {what} --force");
    let mut findings = Vec::new();
    let limits = limits(config);
    if config.discard == DiscardPolicy::Old && !limits.is_empty() {
        findings.push(
            Finding::problem("discard_old", name)
                .because(format!(
                    "it has limits ({}) and makes room by removing the oldest: what was acknowledged is lost unread. One that \
                     discards what is new refuses when it is full, and the relay tries again",
                    limits.join(", ")
                ))
                .fixed_by(edit("--discard new")),
        );
    } else if config.max_messages_per_subject > 0 && !config.discard_new_per_subject {
        findings.push(
            Finding::problem("discard_old", name)
                .because(format!(
                    "it keeps the last {} of each subject and removes those before: what was acknowledged is lost unread",
                    config.max_messages_per_subject
                ))
                .fixed_by(edit("--max-msgs-per-subject=-1")),
        );
    }
    if !config.max_age.is_zero() {
        findings.push(
            Finding::warning("max_age", name)
                .because(format!("it removes what is older than {:?}, read or not; give it longer than its readers are ever away, or no limit", config.max_age))
                .fixed_by(edit("--max-age=0")),
        );
    }
    if config.storage == StorageType::Memory {
        findings.push(
            Finding::warning("memory_storage", name)
                .because("it is held in memory: a restart of its servers loses everything")
                .fixed_by(format!(
                    "make it anew, a stream cannot change this: nats stream add {name} --storage file"
                )),
        );
    }
    findings
}

fn of_config(config: &Config) -> Vec<Finding> {
    let name = config.name.as_str();
    let edit = |what: &str| format!("nats stream edit {name} {what} --force");
    let mut findings = losing(config);
    if config.no_ack {
        findings.push(
            Finding::problem("no_ack", name)
                .because("it never acknowledges: nothing counts as published, and everything is sent again")
                .fixed_by(edit("--ack")),
        );
    }
    if config.sealed {
        findings.push(
            Finding::problem("sealed", name)
                .because("it is sealed: everything is refused, for good")
                .fixed_by("move its subjects to a stream that is not"),
        );
    }
    if config.persist_mode == Some(PersistenceMode::Async) {
        findings.push(
            Finding::warning("async_persist", name)
                .because(
                    "it acknowledges before it writes: a crash of the server loses what was acknowledged",
                )
                .fixed_by(format!("make it anew without it: nats stream add {name} --persist-mode default")),
        );
    }
    if config.duplicate_window < USEFUL_WINDOW {
        findings.push(
            Finding::note("duplicate_window", name)
                .because(format!(
                    "it recognises duplicates for {:?} only: what is sent again later is there twice",
                    config.duplicate_window
                ))
                .fixed_by(edit("--dupe-window=2m")),
        );
    }
    if config.num_replicas < 2 {
        findings.push(
            Finding::note("single_replica", name)
                .because("one server holds it: it is gone with that server's disk. A cluster of three can hold it three times")
                .fixed_by(edit("--replicas=3")),
        );
    }
    findings
}

fn limits(config: &Config) -> Vec<String> {
    let limits = [
        ("max_msgs", config.max_messages),
        ("max_bytes", config.max_bytes),
        ("max_msgs_per_subject", config.max_messages_per_subject),
    ];
    limits
        .into_iter()
        .filter(|(_, limit)| *limit > 0)
        .map(|(name, limit)| format!("{name} = {limit}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the servers of the tests do not know yet.
    #[test]
    fn a_stream_that_acknowledges_before_it_writes_is_told() {
        let config = Config { persist_mode: Some(PersistenceMode::Async), ..Config::default() };
        assert!(of_config(&config).iter().any(|finding| finding.code == "async_persist"));
    }
}
