//! Checks a queue for settings that would lose messages before they are handled.

use super::{builder::Settings, connection::QueueConnection};
use crate::{
    aws::ServiceError,
    sqs::check::{
        dead_letter_finding, fetch_attributes, number, or_finding, redrive_policy, retention_finding,
        set_command,
    },
};
use postrider_core::{Finding, RedeliveryWindow, Severity};
use serde_json::Value;
use std::time::Duration;

/// Restarts and nacked messages count as receives, too.
const FEW_RECEIVES: u64 = 10;
/// A short pause of a loaded machine must not cost a message.
const SHORT_VISIBILITY: Duration = Duration::from_secs(10);

impl QueueConnection {
    pub(super) async fn findings(&self) -> Result<Vec<Finding>, ServiceError> {
        let Settings { queue: name, reject_to, visibility_timeout, .. } = &self.settings;
        let consequence = "no message can be received";
        let client = match or_finding(self.client().await, name, consequence)? {
            Ok(client) => client,
            Err(finding) => return Ok(vec![finding]),
        };
        let sqs = &client.sqs;
        let queue = match or_finding(fetch_attributes(sqs, &client.url).await, name, consequence)? {
            Ok((_, queue)) => queue,
            Err(finding) => return Ok(vec![finding]),
        };
        let mut findings: Vec<_> = retention_finding(name, &queue).into_iter().collect();
        if let Some(mut finding) = dead_letter_finding(sqs, name, &queue).await? {
            if finding.code == "no_redrive" {
                // A consumer with a limit of attempts has dead letters of its own.
                finding.severity = Severity::Note;
            }
            findings.push(finding);
        }
        findings.extend(low_max_receive_count(name, &redrive_policy(&queue)));
        if *visibility_timeout < SHORT_VISIBILITY {
            findings.push(
                Finding::warning("short_visibility", name)
                    .because(format!("a consumer that pauses for {visibility_timeout:?} loses its messages in flight to another consumer"))
                    .fixed_by("leave the visibility timeout at 30 seconds, or set a longer one with `with_visibility_timeout`"),
            );
        }
        if let Some(target) = reject_to
            && let Err(mut finding) =
                or_finding(fetch_attributes(sqs, target).await, target, "rejected messages are redelivered")?
        {
            if finding.severity == Severity::Problem {
                finding.code = "no_refused_queue";
            }
            findings.push(finding);
        }
        Ok(findings)
    }

    pub(super) async fn retention(&self) -> Result<RedeliveryWindow, ServiceError> {
        let client = self.client().await?;
        let (_, queue) = fetch_attributes(&client.sqs, &client.url).await?;
        Ok(match number(&queue, "MessageRetentionPeriod") {
            Some(seconds) => RedeliveryWindow::within(
                Duration::from_secs(seconds),
                format!("MessageRetentionPeriod of {} is {seconds} seconds", self.settings.queue),
            ),
            None => {
                RedeliveryWindow::unbounded(format!("{} has no MessageRetentionPeriod", self.settings.queue))
            }
        })
    }
}

fn low_max_receive_count(name: &str, redrive_policy: &Value) -> Option<Finding> {
    let most = match &redrive_policy["maxReceiveCount"] {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    };
    let most: u64 = most.filter(|most| *most < FEW_RECEIVES)?;
    let because = format!(
        "a message that was received {most} times goes to the dead-letter queue, whether it failed, was nacked or met a restart"
    );
    let setting = r#"RedrivePolicy='{"deadLetterTargetArn":"<ARN>","maxReceiveCount":"100"}'"#;
    Some(
        Finding::warning("low_max_receive_count", name).because(because).fixed_by(set_command(name, setting)),
    )
}
