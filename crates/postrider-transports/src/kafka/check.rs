//! What would lose messages.

use super::{answer, link::KafkaLink, options::KafkaOptions, wire};
use postrider_core::{Finding, PublishError};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, ConfigResource, ResourceSpecifier},
    client::DefaultClientContext,
    error::{KafkaError, RDKafkaErrorCode as Code},
    metadata::Metadata,
};
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;

const HOUR: i64 = 60 * 60 * 1000;
/// Readers that are away for a weekend should find everything when they come back.
const SHORT: i64 = 72 * HOUR;

/// What the cluster says about a topic.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) error: Option<Code>,
    /// The replicas of its partitions, the fewest of all.
    replicas: usize,
    /// Partitions that nobody leads.
    leaderless: usize,
}

impl Topic {
    /// Picks it out of what was said.
    pub(super) fn of(metadata: &Metadata, topic: &str) -> Option<Self> {
        let about = metadata.topics().iter().find(|about| about.name() == topic)?;
        let partitions = about.partitions();
        Some(Self {
            error: about.error().map(Code::from),
            replicas: partitions.iter().map(|one| one.replicas().len()).min().unwrap_or_default(),
            leaderless: partitions.iter().filter(|one| one.leader() < 0).count(),
        })
    }

    /// Whether there is no such topic.
    pub(super) fn is_missing(seen: Option<&Self>) -> bool {
        let missing = [Code::UnknownTopic, Code::UnknownTopicOrPartition];
        seen.is_none_or(|seen| seen.error.is_some_and(|error| missing.contains(&error)))
    }
}

pub(super) async fn findings(
    link: &Arc<KafkaLink>,
    options: &KafkaOptions,
    destinations: &[&str],
) -> Result<Vec<Finding>, PublishError> {
    let mut findings = Vec::new();
    for topic in destinations.iter().copied() {
        if let Err(why) = wire::check_topic(topic) {
            findings.push(
                Finding::problem("bad_topic", topic).because(why).fixed_by("write the name of a topic"),
            );
            continue;
        }
        let seen = look(link, options.cluster.connect_timeout, topic.to_owned()).await?;
        let is_there = seen.as_ref().is_some_and(|seen| seen.error.is_none());
        findings.extend(of_topic(topic, seen.as_ref()));
        if let (true, Some(seen)) = (is_there, seen) {
            match settings(
                &options.config(),
                options.cluster.connect_timeout,
                ResourceSpecifier::Topic(topic),
            )
            .await
            {
                Ok(settings) => findings.extend(of_settings(topic, &seen, &settings, options.message_bytes)),
                Err(error) => findings.push(hidden(topic, &error)),
            }
        }
    }
    Ok(findings)
}

async fn look(link: &Arc<KafkaLink>, within: Duration, topic: String) -> Result<Option<Topic>, PublishError> {
    let asking = link
        .ask(within, move |client, _| Ok(Topic::of(&client.fetch_metadata(Some(&topic), within)?, &topic)));
    asking.await
}

/// The settings of a topic, or of a broker.
pub(super) async fn settings(
    config: &ClientConfig,
    within: Duration,
    whose: ResourceSpecifier<'_>,
) -> Result<ConfigResource, KafkaError> {
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let asked = AdminOptions::new().request_timeout(Some(within)).operation_timeout(Some(within));
    let answered = timeout(within * 2, admin.describe_configs([&whose], &asked)).await;
    // It waits for a thread of its own.
    tokio::task::spawn_blocking(move || drop(admin));
    let silence = KafkaError::AdminOp(Code::OperationTimedOut);
    let answer = answered.unwrap_or(Err(silence.clone()))?.into_iter().next().ok_or(silence)?;
    answer.map_err(KafkaError::AdminOp)
}

fn of_topic(topic: &str, seen: Option<&Topic>) -> Vec<Finding> {
    let subject = format!("topic {topic}");
    match seen {
        seen if Topic::is_missing(seen) => vec![
            Finding::problem("missing_topic", subject)
                .because("it does not exist, and nothing here makes it: every message to it is refused")
                .fixed_by(answer::create(topic)),
        ],
        Some(Topic { error: Some(error), .. }) => vec![not_shown(topic, *error, "producer")],
        Some(seen) => of_partitions(topic, seen, "what goes there is refused"),
        None => Vec::new(),
    }
}

/// Who wants to be a `--producer` or a `--consumer` of it may not.
pub(super) fn not_shown(topic: &str, error: Code, wants: &str) -> Finding {
    Finding::problem("refused", format!("topic {topic}"))
        .because(format!("the cluster does not show it: {error}"))
        .fixed_by(format!(
            "kafka-acls.sh --bootstrap-server … --add --allow-principal User:… --{wants} --topic {topic}"
        ))
}

/// Who leads the partitions of a topic, and who follows.
pub(super) fn of_partitions(topic: &str, seen: &Topic, without_leader: &str) -> Vec<Finding> {
    let (subject, mut findings) = (format!("topic {topic}"), Vec::new());
    if seen.leaderless > 0 {
        findings.push(
            Finding::problem("no_leader", &subject)
                .because(format!("nobody leads {} of its partitions: {without_leader}", seen.leaderless))
                .fixed_by("bring the brokers back that hold them"),
        );
    }
    if seen.replicas == 1 {
        findings.push(
            Finding::warning("single_replica", subject)
                .because("one broker has it: what was accepted is lost with that broker's disk, or by a power failure")
                .fixed_by("kafka-reassign-partitions.sh, to three replicas; and min.insync.replicas=2"),
        );
    }
    findings
}

/// What a topic is told, in the words of Kafka's tools.
fn alter(topic: &str, setting: &str) -> String {
    format!("kafka-configs.sh --bootstrap-server … --alter --topic {topic} --add-config {setting}")
}

/// A setting's value.
pub(super) fn number(settings: &ConfigResource, name: &str) -> Option<i64> {
    settings.get(name)?.value.as_deref()?.parse().ok()
}

fn of_settings(topic: &str, seen: &Topic, settings: &ConfigResource, message_bytes: usize) -> Vec<Finding> {
    let subject = || format!("topic {topic}");
    let alter = |setting: &str| alter(topic, setting);
    let mut findings = Vec::new();
    match number(settings, "min.insync.replicas") {
        None => findings.push(
            Finding::note("not_visible", subject())
                .because("the cluster does not say how many replicas must have a message before it is accepted")
                .fixed_by(alter("min.insync.replicas=2")),
        ),
        Some(least) if usize::try_from(least).is_ok_and(|least| least > seen.replicas) => findings.push(
            Finding::problem("too_few_replicas", subject())
                .because(format!("{least} replicas must have a message, and there are {}: nothing is ever accepted", seen.replicas))
                .fixed_by(alter("min.insync.replicas=2")),
        ),
        Some(1) if seen.replicas > 1 => findings.push(
            Finding::warning("min_insync_replicas", subject())
                .because("min.insync.replicas = 1: when the other replicas lag behind, what the leader alone has is accepted, and lost with it")
                .fixed_by(alter("min.insync.replicas=2")),
        ),
        Some(_) => {}
    }
    findings.extend(of_keeping(topic, settings));
    if let Some(bytes) = number(settings, "max.message.bytes")
        .filter(|bytes| usize::try_from(*bytes).is_ok_and(|most| most < message_bytes))
    {
        findings.push(
            Finding::note("max_message_bytes", subject())
                .because(format!("it takes {bytes} bytes, and `with_message_bytes` allows {message_bytes}: larger messages are refused by the broker, and every batch of records with them"))
                .fixed_by(format!("`with_message_bytes({bytes})`, or {}", alter(&format!("max.message.bytes={message_bytes}")))),
        );
    }
    findings
}

/// What removes messages that nobody has read.
pub(super) fn of_keeping(topic: &str, settings: &ConfigResource) -> Vec<Finding> {
    let subject = || format!("topic {topic}");
    let text = |name: &str| settings.get(name).and_then(|entry| entry.value.as_deref());
    let alter = |setting: &str| alter(topic, setting);
    let mut findings = Vec::new();
    if text("unclean.leader.election.enable") == Some("true") {
        findings.push(
            Finding::warning("unclean_election", subject())
                .because("a replica that lags behind may become the leader, and what it lacks is gone though it was accepted")
                .fixed_by(alter("unclean.leader.election.enable=false")),
        );
    }
    if text("cleanup.policy")
        .is_some_and(|policies| policies.split(',').any(|policy| policy.trim() == "compact"))
    {
        findings.push(
            Finding::problem("compacted", subject())
                .because("it keeps the last message of each key, and removes those before it, read or not")
                .fixed_by(alter("cleanup.policy=delete")),
        );
    }
    if let Some(age) = number(settings, "retention.ms").filter(|age| (0..SHORT).contains(age)) {
        findings.push(
            Finding::warning("short_retention", subject())
                .because(format!("it removes messages after {} hours, read or not", age / HOUR))
                .fixed_by(alter("retention.ms=604800000")),
        );
    }
    if let Some(bytes) = number(settings, "retention.bytes").filter(|bytes| *bytes >= 0) {
        findings.push(
            Finding::warning("retention_bytes", subject())
                .because(format!(
                    "what is above {bytes} bytes in a partition pushes the oldest messages out, read or not"
                ))
                .fixed_by(alter("retention.bytes=-1")),
        );
    }
    findings
}

pub(super) fn hidden(topic: &str, error: &KafkaError) -> Finding {
    Finding::note("not_visible", format!("topic {topic}"))
        .because(format!("it exists, and the cluster does not show its settings: {}", answer::said(error)))
        .fixed_by(format!("kafka-acls.sh --bootstrap-server … --add --allow-principal User:… --operation DescribeConfigs --topic {topic}"))
}
