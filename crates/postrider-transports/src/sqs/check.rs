//! What a queue would lose.

use super::{
    BYTES,
    queue::{Sqs, bad_name, is_name, is_url},
};
use crate::aws::{Kind, Service, Trouble};
use aws_sdk_sqs::types::QueueAttributeName;
use postrider_core::{Finding, PublishError};
use serde_json::Value;
use std::collections::BTreeMap;

/// Four days, as a queue has it unless told otherwise: a weekend in which nobody reads.
const LEAST_RETENTION: u64 = 4 * 24 * 60 * 60;

pub(super) type Attributes = BTreeMap<String, String>;

pub(super) async fn findings(sqs: &Sqs, destination: &str) -> Result<Vec<Finding>, PublishError> {
    if !is_url(destination) && !is_name(destination) {
        let finding = Finding::problem("bad_destination", destination).because(bad_name(destination));
        return Ok(vec![finding.fixed_by("correct the address of the route")]);
    }
    let queue = match seen(look(sqs, destination).await, destination, "every message is refused")? {
        Ok((_, queue)) => queue,
        Err(finding) => return Ok(vec![finding]),
    };
    let mut findings = of_itself(destination, &queue);
    findings.extend(of_dead_letters(sqs, destination, &queue).await?);
    Ok(findings)
}

/// What was seen, or the finding that it cannot be, and `so` what becomes of messages.
pub(super) fn seen<T>(
    looked: Result<T, Trouble>,
    destination: &str,
    so: &str,
) -> Result<Result<T, Finding>, Trouble> {
    match looked {
        Ok(seen) => Ok(Ok(seen)),
        Err(Trouble { kind: Kind::Missing, .. }) => Ok(Err(Finding::problem("no_queue", destination)
            .because(format!("there is no such queue; {so}"))
            .fixed_by(Sqs::make(destination)))),
        Err(Trouble { kind: Kind::Retry(_), said }) => Ok(Err(Finding::note("not_visible", destination)
            .because(format!("what it is like cannot be seen: {said}"))
            .fixed_by("permit sqs:GetQueueUrl and sqs:GetQueueAttributes"))),
        Err(trouble) => Err(trouble),
    }
}

/// The URL of a queue, and what it is like.
pub(super) async fn look(sqs: &Sqs, destination: &str) -> Result<(String, Attributes), Trouble> {
    let url = sqs.find(destination).await?;
    let asked = sqs.0.get_queue_attributes().queue_url(&url).attribute_names(QueueAttributeName::All);
    let answer = asked.send().await.map_err(|error| Trouble::of(&error))?;
    let attributes = answer.attributes.unwrap_or_default().into_iter();
    Ok((url, attributes.map(|(name, value)| (name.as_str().to_owned(), value)).collect()))
}

pub(super) fn number(queue: &Attributes, name: &str) -> Option<u64> {
    queue.get(name)?.parse().ok()
}

pub(super) fn set(destination: &str, setting: &str) -> String {
    format!("aws sqs set-queue-attributes --queue-url <URL of {destination}> --attributes {setting}")
}

pub(super) fn short_retention(destination: &str, queue: &Attributes) -> Option<Finding> {
    let seconds = number(queue, "MessageRetentionPeriod").filter(|seconds| *seconds < LEAST_RETENTION)?;
    let because = format!("what nobody has read after {seconds} seconds is dropped");
    let fix = set(destination, "MessageRetentionPeriod=1209600");
    Some(Finding::warning("short_retention", destination).because(because).fixed_by(fix))
}

fn of_itself(destination: &str, queue: &Attributes) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(short_retention(destination, queue));
    if let Some(bytes) = number(queue, "MaximumMessageSize").filter(|bytes| *bytes < BYTES as u64) {
        let because =
            format!("it takes {bytes} bytes at most; larger messages become dead letters of the relay");
        let fix = set(destination, &format!("MaximumMessageSize={BYTES}"));
        findings.push(Finding::warning("small_messages", destination).because(because).fixed_by(fix));
    }
    if number(queue, "VisibilityTimeout") == Some(0) {
        findings.push(
            Finding::note("no_visibility_timeout", destination)
                .because("a message that somebody works on is handed to others at the same time")
                .fixed_by(set(destination, "VisibilityTimeout=30")),
        );
    }
    if queue.get("Policy").is_some_and(|policy| denies_everybody(policy)) {
        findings.push(
            Finding::problem("denied", destination)
                .because("its policy denies everybody to send; every message is refused")
                .fixed_by("remove that statement from the queue's policy"),
        );
    }
    findings
}

/// Whether somebody wrote that nobody may send, on no condition.
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

/// Where messages go that were received too often.
pub(super) fn redrive(queue: &Attributes) -> Value {
    queue.get("RedrivePolicy").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// What becomes of messages that nobody can handle.
pub(super) async fn of_dead_letters(
    sqs: &Sqs,
    destination: &str,
    queue: &Attributes,
) -> Result<Option<Finding>, Trouble> {
    let redrive = redrive(queue);
    let Some(arn) = redrive["deadLetterTargetArn"].as_str() else {
        let because = "it has no dead-letter queue: what its readers fail at comes again until it is dropped for its age";
        let setting = r#"RedrivePolicy='{"deadLetterTargetArn":"<ARN>","maxReceiveCount":"10"}'"#;
        let finding = Finding::warning("no_redrive", destination).because(because);
        return Ok(Some(finding.fixed_by(set(destination, setting))));
    };
    let name = arn.rsplit(':').next().unwrap_or(arn);
    let (url, dead) = match look(sqs, name).await {
        Ok(found) => found,
        Err(Trouble { kind: Kind::Missing, .. }) => {
            return Ok(Some(
                Finding::problem("no_dead_letter_queue", destination)
                    .because(format!("its dead-letter queue {name} does not exist"))
                    .fixed_by(Sqs::make(name)),
            ));
        }
        // Somebody else's, or nothing that we may see.
        Err(Trouble { kind: Kind::Retry(_), .. }) => return Ok(None),
        Err(trouble) => return Err(trouble),
    };
    let (own, theirs) = (number(queue, "MessageRetentionPeriod"), number(&dead, "MessageRetentionPeriod"));
    if theirs > own || theirs >= Some(1_209_600) || (own, theirs) == (None, None) {
        return Ok(None);
    }
    let because =
        format!("a message's age counts from when it was sent: {name} may drop it when it has just come");
    let fix =
        format!("aws sqs set-queue-attributes --queue-url {url} --attributes MessageRetentionPeriod=1209600");
    Ok(Some(Finding::warning("short_dead_letters", destination).because(because).fixed_by(fix)))
}

#[cfg(test)]
mod tests {
    use super::denies_everybody;

    #[test]
    fn only_what_denies_everybody_to_send_is_told() {
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
