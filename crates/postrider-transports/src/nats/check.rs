//! Checks streams for settings that lose messages.

use super::{connection::NatsConnection, error, wire};
use async_nats::jetstream::{
    context::GetStreamByNameErrorKind,
    stream::{Config, DiscardPolicy, Info, PersistenceMode, RetentionPolicy, StorageType},
};
use postrider_core::{Finding, PublishError};
use std::{collections::BTreeSet, time::Duration};

/// The server's default. A relay rarely completes all retries within a shorter window.
const MIN_DUPLICATE_WINDOW: Duration = Duration::from_secs(120);

/// The findings for these subjects and their streams.
pub(super) async fn findings(
    connection: &NatsConnection,
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
        let stream = match connection.context.stream_by_subject(subject).await {
            Ok(stream) => stream,
            Err(error) if error.kind() == GetStreamByNameErrorKind::NotFound => {
                findings.push(
                    Finding::problem("no_stream", subject)
                        .because("no stream has this subject: nothing can be published to it")
                        .fixed_by(error::create_stream_command(subject)),
                );
                continue;
            }
            Err(error) => return Err(query_failed(&error)),
        };
        if let Some(expected) = expected.filter(|expected| *expected != stream) {
            findings.push(
                Finding::problem("other_stream", subject)
                    .because(format!("the subject belongs to the stream {stream}, but {expected} is expected: every message is refused"))
                    .fixed_by(format!("set `with_stream` to {stream}, or move the subject")),
            );
        }
        streams.insert(stream);
    }
    for name in &streams {
        let stream = connection.context.get_stream(name).await.map_err(|error| query_failed(&error))?;
        findings.extend(stream_findings(stream.cached_info()));
    }
    if !streams.is_empty() {
        findings.push(
            Finding::note("sync_interval", "server")
                .because(
                    "the server acknowledges messages that are written but not yet synced to disk (default interval: two minutes) and \
                     does not show its setting. A power failure may lose acknowledged messages",
                )
                .fixed_by("set jetstream { sync_interval: always } in the configuration of the servers"),
        );
    }
    Ok(findings)
}

fn query_failed(error: &dyn std::fmt::Display) -> PublishError {
    PublishError::retry(format!("JetStream's streams cannot be inspected: {error}"))
}

fn stream_findings(info: &Info) -> Vec<Finding> {
    let mut findings = config_findings(&info.config);
    let name = info.config.name.as_str();
    if info.config.retention == RetentionPolicy::Interest && info.state.consumer_count == 0 {
        findings.push(
            Finding::problem("no_interest", name)
                .because("the stream keeps messages only while a consumer wants them, and it has no consumer: every message is acknowledged and dropped")
                .fixed_by(format!("nats consumer add {name}, or recreate the stream with --retention limits")),
        );
    }
    findings
}

/// Settings by which a stream loses stored messages.
pub(super) fn retention_findings(config: &Config) -> Vec<Finding> {
    let name = config.name.as_str();
    let edit = |option: &str| format!("nats stream edit {name} {option} --force");
    let mut findings = Vec::new();
    let limits = limits(config);
    if config.discard == DiscardPolicy::Old && !limits.is_empty() {
        findings.push(
            Finding::problem("discard_old", name)
                .because(format!(
                    "the stream has limits ({}) and removes the oldest messages above them: acknowledged messages are lost unread. With \
                     --discard new a full stream refuses new messages, and the relay retries",
                    limits.join(", ")
                ))
                .fixed_by(edit("--discard new")),
        );
    } else if config.max_messages_per_subject > 0 && !config.discard_new_per_subject {
        findings.push(
            Finding::problem("discard_old", name)
                .because(format!(
                    "the stream keeps the last {} messages of each subject and removes older ones: acknowledged messages are lost unread",
                    config.max_messages_per_subject
                ))
                .fixed_by(edit("--max-msgs-per-subject=-1")),
        );
    }
    if !config.max_age.is_zero() {
        findings.push(
            Finding::warning("max_age", name)
                .because(format!("the stream removes messages older than {:?}, consumed or not; set it longer than any outage of its consumers, or remove it", config.max_age))
                .fixed_by(edit("--max-age=0")),
        );
    }
    if config.storage == StorageType::Memory {
        findings.push(
            Finding::warning("memory_storage", name)
                .because("the stream is stored in memory: a restart of its servers loses every message")
                .fixed_by(format!(
                    "recreate it, the storage of a stream cannot change: nats stream add {name} --storage file"
                )),
        );
    }
    findings
}

fn config_findings(config: &Config) -> Vec<Finding> {
    let name = config.name.as_str();
    let edit = |option: &str| format!("nats stream edit {name} {option} --force");
    let mut findings = retention_findings(config);
    if config.no_ack {
        findings.push(
            Finding::problem("no_ack", name)
                .because("the stream never acknowledges: no message counts as published, and every message is sent again")
                .fixed_by(edit("--ack")),
        );
    }
    if config.sealed {
        findings.push(
            Finding::problem("sealed", name)
                .because("the stream is sealed: it refuses every message, permanently")
                .fixed_by("move its subjects to a stream that is not sealed"),
        );
    }
    if config.persist_mode == Some(PersistenceMode::Async) {
        findings.push(
            Finding::warning("async_persist", name)
                .because(
                    "the stream acknowledges before it writes: a crash of the server loses acknowledged messages",
                )
                .fixed_by(format!("recreate it without async persistence: nats stream add {name} --persist-mode default")),
        );
    }
    if config.duplicate_window < MIN_DUPLICATE_WINDOW {
        findings.push(
            Finding::note("duplicate_window", name)
                .because(format!(
                    "the stream deduplicates within {:?} only: a message that is resent later is stored twice",
                    config.duplicate_window
                ))
                .fixed_by(edit("--dupe-window=2m")),
        );
    }
    if config.num_replicas < 2 {
        findings.push(
            Finding::note("single_replica", name)
                .because("the stream has one replica: it is lost with that server's disk. A cluster of three servers can keep three replicas")
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

    /// The servers of the tests do not support this setting yet.
    #[test]
    fn check_reports_async_persistence() {
        let config = Config { persist_mode: Some(PersistenceMode::Async), ..Config::default() };
        assert!(config_findings(&config).iter().any(|finding| finding.code == "async_persist"));
    }
}
