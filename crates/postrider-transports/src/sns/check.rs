//! What a topic would lose, and its subscriptions.

use super::topic::{Sns, bad_name, is_arn, is_name};
use crate::aws::{Kind, Service, Trouble};
use postrider_core::{Finding, PublishError};
use std::collections::BTreeMap;

type Attributes = BTreeMap<String, String>;

pub(super) async fn findings(sns: &Sns, destination: &str) -> Result<Vec<Finding>, PublishError> {
    if !is_arn(destination) && !is_name(destination) {
        let finding = Finding::problem("bad_destination", destination).because(bad_name(destination));
        return Ok(vec![finding.fixed_by("correct the address of the route")]);
    }
    let looked = look(sns, destination).await;
    let subscriptions = match looked {
        Ok(subscriptions) => subscriptions,
        Err(Trouble { kind: Kind::Missing, .. }) => {
            return Ok(vec![
                Finding::problem("no_topic", destination)
                    .because("there is no such topic; every message is refused")
                    .fixed_by(Sns::make(destination)),
            ]);
        }
        Err(Trouble { kind: Kind::Retry(_), said }) => {
            return Ok(vec![
                Finding::note("not_visible", destination)
                    .because(format!("what it is like cannot be seen: {said}"))
                    .fixed_by("permit sns:ListTopics, sns:ListSubscriptionsByTopic and sns:GetSubscriptionAttributes"),
            ]);
        }
        Err(trouble) => return Err(trouble.into()),
    };
    if subscriptions.is_empty() {
        return Ok(vec![
            Finding::problem("no_subscription", destination)
                .because("nobody has subscribed: what it accepts is gone at once")
                .fixed_by("aws sns subscribe --topic-arn <ARN> --protocol sqs --notification-endpoint <ARN of a queue>"),
        ]);
    }
    Ok(subscriptions.iter().flat_map(|subscription| of_subscription(destination, subscription)).collect())
}

/// A subscription and what it is like.
struct Subscription {
    /// The ARN, or that there is none yet.
    arn: String,
    protocol: String,
    endpoint: String,
    /// Unless it waits to be confirmed.
    attributes: Option<Attributes>,
}

async fn look(sns: &Sns, destination: &str) -> Result<Vec<Subscription>, Trouble> {
    let topic = sns.find(destination).await?;
    // The list of subscriptions of what does not exist is empty to some.
    let asked = sns.0.get_topic_attributes().topic_arn(&topic).send().await;
    asked.map_err(|error| Trouble::of(&error))?;
    let mut subscriptions = Vec::new();
    let mut next = None;
    loop {
        let asked = sns.0.list_subscriptions_by_topic().topic_arn(&topic).set_next_token(next);
        let listed = asked.send().await.map_err(|error| Trouble::of(&error))?;
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

async fn attributes(sns: &Sns, arn: &str) -> Result<Attributes, Trouble> {
    let asked = sns.0.get_subscription_attributes().subscription_arn(arn).send().await;
    let answer = asked.map_err(|error| Trouble::of(&error))?;
    Ok(answer.attributes.unwrap_or_default().into_iter().collect())
}

fn of_subscription(topic: &str, subscription: &Subscription) -> Vec<Finding> {
    let Subscription { arn, protocol, endpoint, attributes } = subscription;
    let subject = format!("{topic} to {protocol}");
    let is_true =
        |attributes: &Attributes, name: &str| attributes.get(name).is_some_and(|value| value == "true");
    let waiting = attributes.as_ref().is_none_or(|attributes| is_true(attributes, "PendingConfirmation"));
    let Some(attributes) = attributes.as_ref().filter(|_| !waiting) else {
        return vec![
            Finding::warning("not_confirmed", subject)
                .because("it waits to be confirmed, and gets nothing until it is")
                .fixed_by("confirm the subscription, or remove it"),
        ];
    };
    let set = |name: &str, value: &str| {
        format!(
            "aws sns set-subscription-attributes --subscription-arn {arn} --attribute-name {name} --attribute-value {value}"
        )
    };
    let is_there =
        |name: &str| attributes.get(name).is_some_and(|value| !matches!(value.trim(), "" | "{}" | "null"));
    let mut findings = Vec::new();
    if !is_there("RedrivePolicy") {
        findings.push(
            Finding::warning("no_redrive", subject.clone())
                .because(
                    "it has no dead-letter queue: what cannot be delivered is dropped after the last try",
                )
                .fixed_by(set("RedrivePolicy", r#"'{"deadLetterTargetArn":"<ARN of a queue>"}'"#)),
        );
    }
    if is_there("FilterPolicy") {
        findings.push(
            Finding::warning("filtered", subject.clone())
                .because("its filter drops whatever does not match, and whatever lacks the attribute that it asks for")
                .fixed_by(set("FilterPolicy", "'{}'")),
        );
    }
    let has_raw = matches!(protocol.as_str(), "sqs" | "http" | "https" | "firehose");
    if has_raw && !is_true(attributes, "RawMessageDelivery") {
        findings.push(
            Finding::note("not_raw", subject.clone())
                .because("messages come wrapped in a JSON document of SNS, and their attributes inside it")
                .fixed_by(set("RawMessageDelivery", "true")),
        );
    }
    if topic.ends_with(".fifo") && !endpoint.ends_with(".fifo") {
        findings.push(
            Finding::note("unordered", subject)
                .because("the topic keeps the order of each key, and this subscription does not")
                .fixed_by("subscribe a FIFO queue, where the order matters"),
        );
    }
    findings
}
