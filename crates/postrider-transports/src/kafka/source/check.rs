//! What a group would miss, and how to mend it.

use super::{builder::Group, desk::beside};
use crate::kafka::{
    answer,
    check::{Topic, hidden, not_shown, number, of_keeping, of_partitions, settings},
};
use postrider_core::{Finding, SourceError};
use rdkafka::{
    admin::ResourceSpecifier,
    consumer::{BaseConsumer, Consumer},
    error::KafkaError,
};

const MINUTE: i64 = 60 * 1000;

pub(super) async fn findings(group: &Group) -> Result<Vec<Finding>, SourceError> {
    let down =
        |error: &KafkaError| SourceError::down(format!("Kafka does not answer: {}", answer::said(error)));
    let (topic, within) = (&group.topic, group.cluster.connect_timeout);
    let (seen, broker) = look(group).await?.map_err(|error| down(&error))?;
    if Topic::is_missing(seen.as_ref()) {
        return Ok(vec![
            Finding::problem("missing_topic", format!("topic {topic}"))
                .because("it does not exist, and nothing here makes it: nothing can be received")
                .fixed_by(answer::create(topic)),
        ]);
    }
    let Some(seen) = seen else { return Ok(Vec::new()) };
    if let Some(error) = seen.error {
        return Ok(vec![not_shown(topic, error, "consumer")]);
    }
    let mut findings = of_partitions(topic, &seen, "nothing comes from there");
    match settings(&group.asking(), within, ResourceSpecifier::Topic(topic)).await {
        Ok(told) => {
            findings.extend(of_keeping(topic, &told));
            // Where brokers say nothing about themselves, nothing can be said.
            if let Ok(broker) = settings(&group.asking(), within, ResourceSpecifier::Broker(broker)).await {
                let (kept, offsets) =
                    (number(&told, "retention.ms"), number(&broker, "offsets.retention.minutes"));
                findings.extend(of_offsets(&group.name, kept, offsets));
            }
        }
        Err(error) => findings.push(hidden(topic, &error)),
    }
    Ok(findings)
}

/// The topic, and the number of the broker that was asked.
async fn look(group: &Group) -> Result<Result<(Option<Topic>, i32), KafkaError>, SourceError> {
    let (config, topic, within) = (group.asking(), group.topic.clone(), group.cluster.connect_timeout);
    let looking = beside(move || {
        let metadata = config.create::<BaseConsumer>()?.fetch_metadata(Some(&topic), within)?;
        Ok((Topic::of(&metadata, &topic), metadata.orig_broker_id()))
    });
    looking.await
}

/// Whether the cluster forgets where a group is before it forgets the messages.
fn of_offsets(group: &str, kept: Option<i64>, minutes: Option<i64>) -> Option<Finding> {
    let (kept, minutes) = (kept?, minutes?);
    let is_shorter = kept < 0 || minutes.saturating_mul(MINUTE) < kept;
    is_shorter.then(|| {
        Finding::note("offsets_retention", format!("group {group}"))
            .because(format!(
                "when none of its consumers was there for {minutes} minutes, its place is forgotten, and everything that the topic keeps comes again"
            ))
            .fixed_by("offsets.retention.minutes of the brokers, at least as long as retention.ms of the topic")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_forgotten_before_the_messages_is_told() {
        let told = |kept, minutes| of_offsets("billing", kept, minutes).map(|finding| finding.code);
        assert_eq!(told(Some(7 * 24 * 60 * MINUTE), Some(7 * 24 * 60)), None);
        assert_eq!(told(Some(7 * 24 * 60 * MINUTE), Some(60)), Some("offsets_retention"));
        assert_eq!(told(Some(-1), Some(i64::MAX)), Some("offsets_retention"));
        assert_eq!(told(None, Some(60)), None);
        assert_eq!(told(Some(60), None), None);
    }
}
