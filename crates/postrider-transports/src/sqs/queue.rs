//! SQS as a service that takes entries.

use super::BYTES;
use crate::aws::{self, Entry, Kind, Listed, Refused, STRING, Service, Trouble};
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::{
    Client,
    error::BuildError,
    types::{BatchResultErrorEntry, MessageAttributeValue, SendMessageBatchRequestEntry},
};

/// What requests are made with.
pub(super) struct Sqs(pub(super) Client);

#[async_trait]
impl Service for Sqs {
    const BYTES: usize = BYTES;

    fn new(config: &SdkConfig) -> Self {
        Self(Client::new(config))
    }

    async fn find(&self, destination: &str) -> Result<String, Trouble> {
        if is_url(destination) {
            return Ok(destination.to_owned());
        }
        if !is_name(destination) {
            return Err(Trouble::new(Kind::Reject, bad_name(destination)));
        }
        let found = self.0.get_queue_url().queue_name(destination).send().await;
        let found = found.map_err(|error| Trouble::of(&error))?;
        let missing = || Trouble::new(Kind::Unknown, "the answer has no URL".to_owned());
        found.queue_url.filter(|url| !url.is_empty()).ok_or_else(missing)
    }

    async fn send(&self, address: &str, entries: &[&Entry]) -> Result<Listed, Trouble> {
        let built: Result<Vec<_>, BuildError> =
            entries.iter().enumerate().map(|(number, entry)| build(number, entry)).collect();
        let built = built.map_err(|error| Trouble::new(Kind::Reject, error.to_string()))?;
        let sent = self.0.send_message_batch().queue_url(address).set_entries(Some(built)).send().await;
        let answer = sent.map_err(|error| Trouble::of(&error))?;
        let accepted = answer.successful.into_iter().map(|accepted| accepted.id);
        Ok(Listed { accepted: accepted.collect(), refused: refused(answer.failed) })
    }

    fn make(destination: &str) -> String {
        let name = destination.rsplit('/').next().unwrap_or(destination);
        let fifo = if name.ends_with(".fifo") { " --attributes FifoQueue=true" } else { "" };
        format!("aws sqs create-queue --queue-name {name}{fifo}")
    }
}

fn build(number: usize, entry: &Entry) -> Result<SendMessageBatchRequestEntry, BuildError> {
    let mut request = SendMessageBatchRequestEntry::builder()
        .id(number.to_string())
        .message_body(&entry.body)
        .set_message_group_id(entry.group.clone())
        .set_message_deduplication_id(entry.deduplication.clone());
    for (name, value) in &entry.attributes {
        let value = MessageAttributeValue::builder().data_type(STRING).string_value(value).build()?;
        request = request.message_attributes(name, value);
    }
    request.build()
}

/// Those of a batch that failed.
pub(super) fn refused(failed: Vec<BatchResultErrorEntry>) -> Vec<Refused> {
    let refused = |failed: BatchResultErrorEntry| Refused {
        id: failed.id,
        code: failed.code,
        message: failed.message,
        is_senders_fault: failed.sender_fault,
    };
    failed.into_iter().map(refused).collect()
}

pub(super) fn is_url(destination: &str) -> bool {
    destination.starts_with("https://") || destination.starts_with("http://")
}

pub(super) fn is_name(destination: &str) -> bool {
    aws::is_name(destination, 80)
}

pub(super) fn bad_name(destination: &str) -> String {
    format!(
        "{destination:?} is no queue: write its URL, or a name of letters, digits, - and _, up to 80 with .fifo"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_from_what_is_none() {
        let (longest, longer) = ("n".repeat(80), "n".repeat(81));
        for name in ["orders", "Orders-2_x", "payments.fifo", &longest] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".fifo", "a.b", "a b", "ä", "a/b", "ftp://a", &longer] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_url("https://sqs.eu-central-1.amazonaws.com/1/orders"));
    }

    #[test]
    fn what_is_missing_is_made_by_a_command() {
        assert_eq!(Sqs::make("orders"), "aws sqs create-queue --queue-name orders");
        let fifo = "aws sqs create-queue --queue-name pay.fifo --attributes FifoQueue=true";
        assert_eq!(Sqs::make("https://sqs.x.amazonaws.com/1/pay.fifo"), fifo);
    }
}
