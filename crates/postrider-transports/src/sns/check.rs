//! Checks a topic and its subscriptions for settings that would lose messages.

use super::client::{Sns, is_arn, is_name, name_error};
use crate::aws::{FailureKind, Service, ServiceError};
use postrider_core::{Finding, PublishError};
use std::collections::BTreeMap;

type Attributes = BTreeMap<String, String>;

pub(super) async fn findings(sns: &Sns, destination: &str) -> Result<Vec<Finding>, PublishError> {
    if !is_arn(destination) && !is_name(destination) {
        let finding = Finding::problem("bad_destination", destination).because(name_error(destination));
        return Ok(vec![finding.fixed_by("correct the address of the route")]);
    }
    let subscriptions = match fetch_subscriptions(sns, destination).await {
        Ok(subscriptions) => subscriptions,
        Err(ServiceError { kind: FailureKind::Missing, .. }) => {
            return Ok(vec![
                Finding::problem("no_topic", destination)
                    .because("the topic does not exist: every message to it is refused")
                    .fixed_by(Sns::create_command(destination)),
            ]);
        }
        Err(ServiceError { kind: FailureKind::Retry(_) | FailureKind::Forbidden, reason }) => {
            return Ok(vec![
                Finding::note("not_visible", destination)
                    .because(format!("its settings cannot be read: {reason}"))
                    .fixed_by("grant sns:ListTopics, sns:ListSubscriptionsByTopic and sns:GetSubscriptionAttributes"),
            ]);
        }
        Err(error) => return Err(error.into()),
    };
    if subscriptions.is_empty() {
        return Ok(vec![
            Finding::problem("no_subscription", destination)
                .because("the topic has no subscription: accepted messages are lost at once")
                .fixed_by("aws sns subscribe --topic-arn <ARN> --protocol sqs --notification-endpoint <ARN of a queue>"),
        ]);
    }
    Ok(subscriptions
        .iter()
        .flat_map(|subscription| subscription_findings(destination, subscription))
        .collect())
}

/// A subscription and its attributes.
struct Subscription {
    /// The ARN, or a placeholder while the subscription is not confirmed.
    arn: String,
    protocol: String,
    endpoint: String,
    /// `None` while the subscription is not confirmed.
    attributes: Option<Attributes>,
}

async fn fetch_subscriptions(sns: &Sns, destination: &str) -> Result<Vec<Subscription>, ServiceError> {
    let topic = sns.resolve(destination).await?;
    // Some servers return an empty list of subscriptions for a topic that does not exist.
    let asked = sns.0.get_topic_attributes().topic_arn(&topic).send().await;
    asked.map_err(|error| ServiceError::of(&error))?;
    let mut subscriptions = Vec::new();
    let mut next = None;
    loop {
        let asked = sns.0.list_subscriptions_by_topic().topic_arn(&topic).set_next_token(next);
        let listed = asked.send().await.map_err(|error| ServiceError::of(&error))?;
        for each in listed.subscriptions.unwrap_or_default() {
            let arn = each.subscription_arn.unwrap_or_default();
            let attributes = match arn.starts_with("arn:") {
                true => Some(attributes(sns, &arn).await?),
                false => None,
            };
            let (protocol, endpoint) = (each.protocol.unwrap_or_default(), each.endpoint.unwrap_or_default());
            subscriptions.push(Subscription { arn, protocol, endpoint, attributes });
        }
        next = listed.next_token.filter(|token| !token.is_empty());
        if next.is_none() {
            return Ok(subscriptions);
        }
    }
}

async fn attributes(sns: &Sns, arn: &str) -> Result<Attributes, ServiceError> {
    let asked = sns.0.get_subscription_attributes().subscription_arn(arn).send().await;
    let response = asked.map_err(|error| ServiceError::of(&error))?;
    Ok(response.attributes.unwrap_or_default().into_iter().collect())
}

fn subscription_findings(topic: &str, subscription: &Subscription) -> Vec<Finding> {
    let Subscription { arn, protocol, endpoint, attributes } = subscription;
    let subject = format!("{topic} to {protocol}");
    let is_true =
        |attributes: &Attributes, name: &str| attributes.get(name).is_some_and(|value| value == "true");
    let is_pending = attributes.as_ref().is_none_or(|attributes| is_true(attributes, "PendingConfirmation"));
    let Some(attributes) = attributes.as_ref().filter(|_| !is_pending) else {
        return vec![
            Finding::warning("not_confirmed", subject)
                .because("the subscription is not confirmed: it receives no messages until then")
                .fixed_by("confirm the subscription, or remove it"),
        ];
    };
    let set = |name: &str, value: &str| {
        format!(
            "aws sns set-subscription-attributes --subscription-arn {arn} --attribute-name {name} --attribute-value {value}"
        )
    };
    let is_set =
        |name: &str| attributes.get(name).is_some_and(|value| !matches!(value.trim(), "" | "{}" | "null"));
    let mut findings = Vec::new();
    if !is_set("RedrivePolicy") {
        findings.push(
            Finding::warning("no_redrive", subject.clone())
                .because(
                    "the subscription has no dead-letter queue: messages that cannot be delivered are dropped after the last retry",
                )
                .fixed_by(set("RedrivePolicy", r#"'{"deadLetterTargetArn":"<ARN of a queue>"}'"#)),
        );
    }
    if is_set("FilterPolicy") {
        findings.push(
            Finding::warning("filtered", subject.clone())
                .because("the subscription's filter drops messages that do not match, and messages without the attribute that it tests")
                .fixed_by(set("FilterPolicy", "'{}'")),
        );
    }
    let has_raw = matches!(protocol.as_str(), "sqs" | "http" | "https" | "firehose");
    if has_raw && !is_true(attributes, "RawMessageDelivery") {
        findings.push(
            Finding::note("not_raw", subject.clone())
                .because("raw message delivery is off: messages and their attributes arrive wrapped in a JSON document of SNS")
                .fixed_by(set("RawMessageDelivery", "true")),
        );
    }
    if topic.ends_with(".fifo") && !endpoint.ends_with(".fifo") {
        findings.push(
            Finding::note("unordered", subject)
                .because("the topic keeps the order of each key, but this subscription does not")
                .fixed_by("subscribe a FIFO queue if the order matters"),
        );
    }
    findings
}
