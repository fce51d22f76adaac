//! Checks topics for settings that would lose messages.

use super::{connection::KafkaConnection, error, options::KafkaOptions, wire};
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
/// Consumers that are stopped over a weekend should find all messages afterwards.
const SHORT_RETENTION: i64 = 72 * HOUR;

/// The metadata of a topic.
#[derive(Debug)]
pub(super) struct TopicMetadata {
    pub(super) error: Option<Code>,
    /// The smallest number of replicas of any partition.
    replicas: usize,
    /// The number of partitions without a leader.
    leaderless: usize,
}

impl TopicMetadata {
    /// Picks one topic out of the cluster's metadata.
    pub(super) fn of(metadata: &Metadata, topic: &str) -> Option<Self> {
        let topic = metadata.topics().iter().find(|each| each.name() == topic)?;
        let partitions = topic.partitions();
        Some(Self {
            error: topic.error().map(Code::from),
            replicas: partitions.iter().map(|one| one.replicas().len()).min().unwrap_or_default(),
            leaderless: partitions.iter().filter(|one| one.leader() < 0).count(),
        })
    }

    /// Whether the topic does not exist.
    pub(super) fn is_missing(metadata: Option<&Self>) -> bool {
        let missing = [Code::UnknownTopic, Code::UnknownTopicOrPartition];
        metadata.is_none_or(|topic| topic.error.is_some_and(|error| missing.contains(&error)))
    }
}

pub(super) async fn findings(
    connection: &Arc<KafkaConnection>,
    options: &KafkaOptions,
    destinations: &[&str],
) -> Result<Vec<Finding>, PublishError> {
    let mut findings = Vec::new();
    let client = options.config().map_err(PublishError::unavailable)?;
    for topic in destinations.iter().copied() {
        if let Err(why) = wire::check_topic(topic) {
            findings.push(
                Finding::problem("bad_topic", topic)
                    .because(why)
                    .fixed_by("correct the topic name in the address of the route"),
            );
            continue;
        }
        let metadata = fetch_topic(connection, options.cluster.connect_timeout, topic.to_owned()).await?;
        let is_readable = metadata.as_ref().is_some_and(|metadata| metadata.error.is_none());
        findings.extend(topic_findings(topic, metadata.as_ref()));
        if let (true, Some(metadata)) = (is_readable, metadata) {
            match describe_config(&client, options.cluster.connect_timeout, ResourceSpecifier::Topic(topic))
                .await
            {
                Ok(config) => {
                    findings.extend(config_findings(topic, &metadata, &config, options.message_bytes));
                }
                Err(error) => findings.push(hidden_config(topic, &error)),
            }
        }
    }
    Ok(findings)
}

async fn fetch_topic(
    connection: &Arc<KafkaConnection>,
    within: Duration,
    topic: String,
) -> Result<Option<TopicMetadata>, PublishError> {
    let query = connection.query(within, move |client, _| {
        Ok(TopicMetadata::of(&client.fetch_metadata(Some(&topic), within)?, &topic))
    });
    query.await
}

/// The configuration of a topic, or of a broker.
pub(super) async fn describe_config(
    client: &ClientConfig,
    within: Duration,
    resource: ResourceSpecifier<'_>,
) -> Result<ConfigResource, KafkaError> {
    let admin: AdminClient<DefaultClientContext> = client.create()?;
    let options = AdminOptions::new().request_timeout(Some(within)).operation_timeout(Some(within));
    let response = timeout(within * 2, admin.describe_configs([&resource], &options)).await;
    // Dropping the client joins its thread.
    tokio::task::spawn_blocking(move || drop(admin));
    let timed_out = KafkaError::AdminOp(Code::OperationTimedOut);
    let config = response.unwrap_or(Err(timed_out.clone()))?.into_iter().next().ok_or(timed_out)?;
    config.map_err(KafkaError::AdminOp)
}

fn topic_findings(topic: &str, metadata: Option<&TopicMetadata>) -> Vec<Finding> {
    let subject = format!("topic {topic}");
    match metadata {
        metadata if TopicMetadata::is_missing(metadata) => vec![
            Finding::problem("missing_topic", subject)
                .because("the topic does not exist and is not created automatically: every message to it is refused")
                .fixed_by(error::create_topic_command(topic)),
        ],
        Some(TopicMetadata { error: Some(error), .. }) => vec![hidden_topic(topic, *error, "producer")],
        Some(metadata) => partition_findings(topic, metadata, "their messages are refused"),
        None => Vec::new(),
    }
}

/// The cluster does not show the topic to a client that needs the ACLs of a `--producer` or a `--consumer`.
pub(super) fn hidden_topic(topic: &str, error: Code, role: &str) -> Finding {
    Finding::problem("topic_denied", format!("topic {topic}"))
        .because(format!("the cluster does not show the topic: {error}"))
        .fixed_by(format!(
            "kafka-acls.sh --bootstrap-server … --add --allow-principal User:… --{role} --topic {topic}"
        ))
}

/// Findings about leaders and replicas. `consequence` says what a missing leader means for messages.
pub(super) fn partition_findings(topic: &str, metadata: &TopicMetadata, consequence: &str) -> Vec<Finding> {
    let (subject, mut findings) = (format!("topic {topic}"), Vec::new());
    if metadata.leaderless > 0 {
        findings.push(
            Finding::problem("no_leader", &subject)
                .because(format!("{} of its partitions have no leader: {consequence}", metadata.leaderless))
                .fixed_by("restart the brokers that hold these partitions"),
        );
    }
    if metadata.replicas == 1 {
        findings.push(
            Finding::warning("single_replica", subject)
                .because("only one broker has each message: accepted messages are lost with that broker's disk, or by a power failure")
                .fixed_by("kafka-reassign-partitions.sh, to three replicas; and min.insync.replicas=2"),
        );
    }
    findings
}

fn alter_command(topic: &str, setting: &str) -> String {
    format!("kafka-configs.sh --bootstrap-server … --alter --topic {topic} --add-config {setting}")
}

/// The value of a numeric setting.
pub(super) fn number(config: &ConfigResource, name: &str) -> Option<i64> {
    config.get(name)?.value.as_deref()?.parse().ok()
}

fn config_findings(
    topic: &str,
    metadata: &TopicMetadata,
    config: &ConfigResource,
    message_bytes: usize,
) -> Vec<Finding> {
    let subject = || format!("topic {topic}");
    let alter = |setting: &str| alter_command(topic, setting);
    let mut findings = Vec::new();
    match number(config, "min.insync.replicas") {
        None => findings.push(
            Finding::note("not_visible", subject())
                .because("the cluster does not show min.insync.replicas: how many replicas have an accepted message is unknown")
                .fixed_by(alter("min.insync.replicas=2")),
        ),
        Some(least) if usize::try_from(least).is_ok_and(|least| least > metadata.replicas) => findings.push(
            Finding::problem("too_few_replicas", subject())
                .because(format!("min.insync.replicas = {least}, but there are {} replicas: no message is ever accepted", metadata.replicas))
                .fixed_by(alter("min.insync.replicas=2")),
        ),
        Some(1) if metadata.replicas > 1 => findings.push(
            Finding::warning("min_insync_replicas", subject())
                .because("min.insync.replicas = 1: while the other replicas lag, messages are accepted that only the leader has, and are lost with it")
                .fixed_by(alter("min.insync.replicas=2")),
        ),
        Some(_) => {}
    }
    findings.extend(retention_findings(topic, config));
    if let Some(bytes) = number(config, "max.message.bytes")
        .filter(|bytes| usize::try_from(*bytes).is_ok_and(|most| most < message_bytes))
    {
        findings.push(
            Finding::note("max_message_bytes", subject())
                .because(format!("max.message.bytes = {bytes}, but `with_message_bytes` allows {message_bytes}: the broker refuses larger messages, and every batch of records that contains one"))
                .fixed_by(format!("`with_message_bytes({bytes})`, or {}", alter(&format!("max.message.bytes={message_bytes}")))),
        );
    }
    findings
}

/// Findings about settings that remove messages before they are read.
pub(super) fn retention_findings(topic: &str, config: &ConfigResource) -> Vec<Finding> {
    let subject = || format!("topic {topic}");
    let text = |name: &str| config.get(name).and_then(|entry| entry.value.as_deref());
    let alter = |setting: &str| alter_command(topic, setting);
    let mut findings = Vec::new();
    if text("unclean.leader.election.enable") == Some("true") {
        findings.push(
            Finding::warning("unclean_election", subject())
                .because(
                    "a replica that lags may become the leader: accepted messages that it lacks are lost",
                )
                .fixed_by(alter("unclean.leader.election.enable=false")),
        );
    }
    if text("cleanup.policy")
        .is_some_and(|policies| policies.split(',').any(|policy| policy.trim() == "compact"))
    {
        findings.push(
            Finding::problem("compacted", subject())
                .because("the topic is compacted: it keeps the last message of each key and removes earlier ones, read or not")
                .fixed_by(alter("cleanup.policy=delete")),
        );
    }
    if let Some(age) = number(config, "retention.ms").filter(|age| (0..SHORT_RETENTION).contains(age)) {
        findings.push(
            Finding::warning("short_retention", subject())
                .because(format!("the topic removes messages after {} hours, read or not", age / HOUR))
                .fixed_by(alter("retention.ms=604800000")),
        );
    }
    if let Some(bytes) = number(config, "retention.bytes").filter(|bytes| *bytes >= 0) {
        findings.push(
            Finding::warning("retention_bytes", subject())
                .because(format!(
                    "a partition larger than {bytes} bytes removes its oldest messages, read or not"
                ))
                .fixed_by(alter("retention.bytes=-1")),
        );
    }
    findings
}

pub(super) fn hidden_config(topic: &str, error: &KafkaError) -> Finding {
    Finding::note("not_visible", format!("topic {topic}"))
        .because(format!("the topic exists, but the cluster does not show its configuration: {}", error::describe(error)))
        .fixed_by(format!("kafka-acls.sh --bootstrap-server … --add --allow-principal User:… --operation DescribeConfigs --topic {topic}"))
}
