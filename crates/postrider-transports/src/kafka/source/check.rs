//! Checks a topic and its group for settings that would lose or repeat messages.

use super::{builder::ConsumerGroup, group_member::run_blocking};
use crate::kafka::{
    check::{
        TopicMetadata, describe_config, hidden_config, hidden_topic, number, partition_findings,
        retention_findings,
    },
    error,
};
use postrider_core::{Finding, SourceError};
use rdkafka::{
    admin::ResourceSpecifier,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
};

const MINUTE: i64 = 60 * 1000;

pub(super) async fn findings(group: &ConsumerGroup) -> Result<Vec<Finding>, SourceError> {
    let unavailable = |error: &KafkaError| {
        SourceError::unavailable(format!("Kafka does not respond: {}", error::describe(error)))
    };
    let (topic, within) = (&group.topic, group.cluster.connect_timeout);
    let (metadata, broker) = fetch_topic(group).await?.map_err(|error| unavailable(&error))?;
    if TopicMetadata::is_missing(metadata.as_ref()) {
        return Ok(vec![
            Finding::problem("missing_topic", format!("topic {topic}"))
                .because(
                    "the topic does not exist and is not created automatically: no message can be received",
                )
                .fixed_by(error::create_topic_command(topic)),
        ]);
    }
    let Some(metadata) = metadata else { return Ok(Vec::new()) };
    if let Some(error) = metadata.error {
        return Ok(vec![hidden_topic(topic, error, "consumer")]);
    }
    let mut findings = partition_findings(topic, &metadata, "no message is received from them");
    let client = group.admin_config().map_err(SourceError::unavailable)?;
    match describe_config(&client, within, ResourceSpecifier::Topic(topic)).await {
        Ok(config) => {
            findings.extend(retention_findings(topic, &config));
            // A broker that does not show its configuration gives no finding.
            if let Ok(broker) = describe_config(&client, within, ResourceSpecifier::Broker(broker)).await {
                let (kept, offsets) =
                    (number(&config, "retention.ms"), number(&broker, "offsets.retention.minutes"));
                findings.extend(offsets_finding(&group.name, kept, offsets));
            }
        }
        Err(error) => findings.push(hidden_config(topic, &error)),
    }
    Ok(findings)
}

/// The metadata of the topic, and the id of the broker that sent it.
async fn fetch_topic(
    group: &ConsumerGroup,
) -> Result<Result<(Option<TopicMetadata>, i32), KafkaError>, SourceError> {
    let config = group.admin_config().map_err(SourceError::unavailable)?;
    let (topic, within) = (group.topic.clone(), group.cluster.connect_timeout);
    let query = run_blocking(move || {
        let metadata = config.create::<BaseConsumer>()?.fetch_metadata(Some(&topic), within)?;
        Ok((TopicMetadata::of(&metadata, &topic), metadata.orig_broker_id()))
    });
    query.await
}

/// Warns if the cluster expires the offsets of a group before the messages of its topic.
fn offsets_finding(group: &str, kept: Option<i64>, minutes: Option<i64>) -> Option<Finding> {
    let (kept, minutes) = (kept?, minutes?);
    let is_shorter = kept < 0 || minutes.saturating_mul(MINUTE) < kept;
    is_shorter.then(|| {
        Finding::note("offsets_retention", format!("group {group}"))
            .because(format!(
                "the group's offsets expire after {minutes} minutes without a consumer: every message that the topic still has is then redelivered"
            ))
            .fixed_by("set offsets.retention.minutes of the brokers at least as long as retention.ms of the topic")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_that_expire_before_messages_are_reported() {
        let code = |kept, minutes| offsets_finding("billing", kept, minutes).map(|finding| finding.code);
        assert_eq!(code(Some(7 * 24 * 60 * MINUTE), Some(7 * 24 * 60)), None);
        assert_eq!(code(Some(7 * 24 * 60 * MINUTE), Some(60)), Some("offsets_retention"));
        assert_eq!(code(Some(-1), Some(i64::MAX)), Some("offsets_retention"));
        assert_eq!(code(None, Some(60)), None);
        assert_eq!(code(Some(60), None), None);
    }
}
