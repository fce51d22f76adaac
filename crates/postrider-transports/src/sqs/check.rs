//! Checks a queue for settings that would lose messages.

use super::{
    BYTES,
    client::{Sqs, is_name, is_url, name_error},
};
use crate::aws::{FailureKind, Service, ServiceError};
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_core::{Finding, PublishError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Four days, the default of a queue: consumers that are stopped over a weekend lose no messages.
const LEAST_RETENTION: u64 = 4 * 24 * 60 * 60;

pub(super) type Attributes = BTreeMap<String, String>;

pub(super) async fn findings(sqs: &Sqs, destination: &str) -> Result<Vec<Finding>, PublishError> {
    if !is_url(destination) && !is_name(destination) {
        let finding = Finding::problem("bad_destination", destination).because(name_error(destination));
        return Ok(vec![finding.fixed_by("correct the address of the route")]);
    }
    let queue = match or_finding(
        fetch_attributes(sqs, destination).await,
        destination,
        "every message is refused",
    )? {
        Ok((_, queue)) => queue,
        Err(finding) => return Ok(vec![finding]),
    };
    let mut findings = queue_findings(destination, &queue);
    findings.extend(dead_letter_finding(sqs, destination, &queue).await?);
    Ok(findings)
}

/// The result of a lookup, or the finding that the queue is missing or not visible. `consequence` says what that means for messages.
pub(super) fn or_finding<T>(
    lookup: Result<T, ServiceError>,
    destination: &str,
    consequence: &str,
) -> Result<Result<T, Finding>, ServiceError> {
    match lookup {
        Ok(found) => Ok(Ok(found)),
        Err(ServiceError { kind: FailureKind::Missing, .. }) => {
            Ok(Err(Finding::problem("no_queue", destination)
                .because(format!("the queue does not exist: {consequence}"))
                .fixed_by(Sqs::create_command(destination))))
        }
        Err(ServiceError { kind: FailureKind::Retry(_) | FailureKind::Forbidden, reason }) => {
            Ok(Err(Finding::note("not_visible", destination)
                .because(format!("its settings cannot be read: {reason}"))
                .fixed_by("grant sqs:GetQueueUrl and sqs:GetQueueAttributes")))
        }
        Err(error) => Err(error),
    }
}

/// The URL of a queue, and its attributes.
pub(super) async fn fetch_attributes(
    sqs: &Sqs,
    destination: &str,
) -> Result<(String, Attributes), ServiceError> {
    let url = sqs.resolve(destination).await?;
    let asked = sqs.0.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All);
    let response = asked.send().await.map_err(|error| ServiceError::of(&error))?;
    let attributes = response.attributes.unwrap_or_default().into_iter();
    Ok((url, attributes.map(|(name, value)| (name.as_str().to_owned(), value)).collect()))
}

pub(super) fn number(queue: &Attributes, name: &str) -> Option<u64> {
    queue.get(name)?.parse().ok()
}

pub(super) fn set_command(destination: &str, setting: &str) -> String {
    format!("aws sqs set-queue-attributes --queue-url <URL of {destination}> --attributes {setting}")
}

pub(super) fn retention_finding(destination: &str, queue: &Attributes) -> Option<Finding> {
    let seconds = number(queue, "MessageRetentionPeriod").filter(|seconds| *seconds < LEAST_RETENTION)?;
    let because = format!("the queue drops messages that are not consumed within {seconds} seconds");
    let fix = set_command(destination, "MessageRetentionPeriod=1209600");
    Some(Finding::warning("short_retention", destination).because(because).fixed_by(fix))
}

fn queue_findings(destination: &str, queue: &Attributes) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(retention_finding(destination, queue));
    if let Some(bytes) = number(queue, "MaximumMessageSize").filter(|bytes| *bytes < BYTES as u64) {
        let because =
            format!("MaximumMessageSize is {bytes} bytes: larger messages become dead letters of the relay");
        let fix = set_command(destination, &format!("MaximumMessageSize={BYTES}"));
        findings.push(Finding::warning("small_messages", destination).because(because).fixed_by(fix));
    }
    if number(queue, "VisibilityTimeout") == Some(0) {
        findings.push(
            Finding::note("no_visibility_timeout", destination)
                .because("VisibilityTimeout is 0: a message that is being handled is delivered to other consumers at the same time")
                .fixed_by(set_command(destination, "VisibilityTimeout=30")),
        );
    }
    if queue.get("Policy").is_some_and(|policy| denies_everybody(policy)) {
        findings.push(
            Finding::problem("denied", destination)
                .because("the queue's policy denies sqs:SendMessage to everybody: every message is refused")
                .fixed_by("remove that statement from the queue's policy"),
        );
    }
    findings
}

/// Whether a statement without a condition denies sending to everybody.
fn denies_everybody(policy: &str) -> bool {
    let policy: Value = serde_json::from_str(policy).unwrap_or_default();
    let one_or_many = |value: &Value| match value {
        Value::Array(many) => many.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    };
    let is_send = |action: &Value| {
        let action = action.as_str().unwrap_or_default().to_ascii_lowercase();
        ["*", "sqs:*", "sqs:send*", "sqs:sendmessage", "sqs:sendmessage*"].contains(&action.as_str())
    };
    one_or_many(&policy["Statement"]).iter().any(|statement| {
        let principal = &statement["Principal"];
        let is_everybody = *principal == "*" || one_or_many(&principal["AWS"]).iter().any(|one| *one == "*");
        let has_no_condition = statement["Condition"].as_object().is_none_or(serde_json::Map::is_empty);
        statement["Effect"] == "Deny"
            && is_everybody
            && has_no_condition
            && one_or_many(&statement["Action"]).iter().any(is_send)
    })
}

/// The redrive policy of a queue.
pub(super) fn redrive_policy(queue: &Attributes) -> Value {
    queue.get("RedrivePolicy").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// Reports a missing dead-letter queue, or one with a retention that is too short.
pub(super) async fn dead_letter_finding(
    sqs: &Sqs,
    destination: &str,
    queue: &Attributes,
) -> Result<Option<Finding>, ServiceError> {
    let redrive_policy = redrive_policy(queue);
    let Some(arn) = redrive_policy["deadLetterTargetArn"].as_str() else {
        let because = "the queue has no dead-letter queue: messages that consumers fail to handle are redelivered until they expire";
        let setting = r#"RedrivePolicy='{"deadLetterTargetArn":"<ARN>","maxReceiveCount":"10"}'"#;
        let finding = Finding::warning("no_redrive", destination).because(because);
        return Ok(Some(finding.fixed_by(set_command(destination, setting))));
    };
    let name = arn.rsplit(':').next().unwrap_or(arn);
    let (url, dead) = match fetch_attributes(sqs, name).await {
        Ok(found) => found,
        Err(ServiceError { kind: FailureKind::Missing, .. }) => {
            return Ok(Some(
                Finding::problem("no_dead_letter_queue", destination)
                    .because(format!("the dead-letter queue {name} of its redrive policy does not exist"))
                    .fixed_by(Sqs::create_command(name)),
            ));
        }
        // The queue belongs to another account, or may not be read.
        Err(ServiceError { kind: FailureKind::Retry(_) | FailureKind::Forbidden, .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (own, theirs) = (number(queue, "MessageRetentionPeriod"), number(&dead, "MessageRetentionPeriod"));
    if theirs > own || theirs >= Some(1_209_600) || (own, theirs) == (None, None) {
        return Ok(None);
    }
    let because =
        format!("a message's age counts from when it was sent: {name} may drop a dead letter on arrival");
    let fix =
        format!("aws sqs set-queue-attributes --queue-url {url} --attributes MessageRetentionPeriod=1209600");
    Ok(Some(Finding::warning("short_dead_letters", destination).because(because).fixed_by(fix)))
}

#[cfg(test)]
mod tests {
    use super::denies_everybody;

    #[test]
    fn denies_everybody_needs_unconditional_deny_of_sending() {
        let with = |statement: &str| denies_everybody(&format!(r#"{{"Statement":{statement}}}"#));
        assert!(with(r#"[{"Effect":"Deny","Principal":"*","Action":"sqs:SendMessage"}]"#));
        assert!(with(
            r#"{"Effect":"Deny","Principal":{"AWS":["*"]},"Action":["sqs:ReceiveMessage","SQS:*"]}"#
        ));
        assert!(!with(r#"{"Effect":"Allow","Principal":"*","Action":"*"}"#));
        assert!(!with(r#"{"Effect":"Deny","Principal":{"AWS":"arn:aws:iam::1:root"},"Action":"*"}"#));
        assert!(!with(r#"{"Effect":"Deny","Principal":"*","Action":"sqs:DeleteQueue"}"#));
        let tls = r#"{"Bool":{"aws:SecureTransport":"false"}}"#;
        assert!(!with(&format!(r#"{{"Effect":"Deny","Principal":"*","Action":"*","Condition":{tls}}}"#)));
        assert!(!denies_everybody("nonsense"));
    }
}
