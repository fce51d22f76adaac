//! What a queue would lose before it was handled.

use super::{builder::Settings, link::Link};
use crate::{
    aws::Trouble,
    sqs::check::{look, number, of_dead_letters, redrive, seen, set, short_retention},
};
use postrider_core::{Finding, Redelivers, Severity};
use serde_json::Value;
use std::time::Duration;

/// Restarts and messages that are handed back count as well.
const FEW_RECEIVES: u64 = 10;
/// A pause of a loaded machine must not cost a message.
const SHORT: Duration = Duration::from_secs(10);

impl Link {
    pub(super) async fn findings(&self) -> Result<Vec<Finding>, Trouble> {
        let Settings { queue: name, refused_to, hold, .. } = &self.settings;
        let so = "nothing can be received";
        let there = match seen(self.there().await, name, so)? {
            Ok((sqs, url)) => seen(look(sqs, url).await, name, so)?.map(|(_, queue)| (sqs, queue)),
            Err(finding) => Err(finding),
        };
        let (sqs, queue) = match there {
            Ok(found) => found,
            Err(finding) => return Ok(vec![finding]),
        };
        let mut findings: Vec<_> = short_retention(name, &queue).into_iter().collect();
        if let Some(mut finding) = of_dead_letters(sqs, name, &queue).await? {
            if finding.code == "no_redrive" {
                // A consumer that gives up after a while has dead letters of its own.
                finding.severity = Severity::Note;
            }
            findings.push(finding);
        }
        findings.extend(few_receives(name, &redrive(&queue)));
        if *hold < SHORT {
            findings.push(
                Finding::warning("short_visibility", name)
                    .because(format!("a consumer that pauses for {hold:?} loses what it has in hand to another"))
                    .fixed_by("leave the visibility timeout at 30 seconds, or give more with `with_visibility_timeout`"),
            );
        }
        if let Some(refused) = refused_to
            && let Err(mut finding) = seen(look(sqs, refused).await, refused, "what is refused comes again")?
        {
            if finding.severity == Severity::Problem {
                finding.code = "no_refused_queue";
            }
            findings.push(finding);
        }
        Ok(findings)
    }

    pub(super) async fn retention(&self) -> Result<Redelivers, Trouble> {
        let (sqs, url) = self.there().await?;
        let (_, queue) = look(sqs, url).await?;
        Ok(match number(&queue, "MessageRetentionPeriod") {
            Some(seconds) => Redelivers::within(
                Duration::from_secs(seconds),
                format!("MessageRetentionPeriod of {} is {seconds} seconds", self.settings.queue),
            ),
            None => Redelivers::for_ever(format!("{} has no MessageRetentionPeriod", self.settings.queue)),
        })
    }
}

fn few_receives(name: &str, redrive: &Value) -> Option<Finding> {
    let most = match &redrive["maxReceiveCount"] {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    };
    let most: u64 = most.filter(|most| *most < FEW_RECEIVES)?;
    let because = format!(
        "what was received {most} times goes to the dead-letter queue, whether it failed, was handed back or met a restart"
    );
    let setting = r#"RedrivePolicy='{"deadLetterTargetArn":"<ARN>","maxReceiveCount":"100"}'"#;
    Some(Finding::warning("few_receives", name).because(because).fixed_by(set(name, setting)))
}
