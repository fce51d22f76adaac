//! The SQS client: resolves queues and sends batches.

use super::BYTES;
use crate::aws::{self, BatchEntry, BatchResult, FailedEntry, FailureKind, STRING, Service, ServiceError};
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sqs::{
    Client,
    error::BuildError,
    types::{BatchResultErrorEntry, MessageAttributeValue, SendMessageBatchRequestEntry},
};

/// The client that sends requests to SQS.
pub(super) struct Sqs(pub(super) Client);

#[async_trait]
impl Service for Sqs {
    const BYTES: usize = BYTES;

    fn new(config: &SdkConfig) -> Self {
        Self(Client::new(config))
    }

    async fn resolve(&self, destination: &str) -> Result<String, ServiceError> {
        if is_url(destination) {
            return Ok(destination.to_owned());
        }
        if !is_name(destination) {
            return Err(ServiceError::new(FailureKind::Reject, name_error(destination)));
        }
        let found = self.0.get_queue_url().queue_name(destination).send().await;
        let found = found.map_err(|error| ServiceError::of(&error))?;
        let missing = || {
            ServiceError::new(FailureKind::Unknown, "the response of GetQueueUrl contains no URL".to_owned())
        };
        found.queue_url.filter(|url| !url.is_empty()).ok_or_else(missing)
    }

    async fn send(&self, address: &str, entries: &[&BatchEntry]) -> Result<BatchResult, ServiceError> {
        let built: Result<Vec<_>, BuildError> =
            entries.iter().enumerate().map(|(number, entry)| build(number, entry)).collect();
        let built = built.map_err(|error| ServiceError::new(FailureKind::Reject, error.to_string()))?;
        let sent = self.0.send_message_batch().queue_url(address).set_entries(Some(built)).send().await;
        let response = sent.map_err(|error| ServiceError::of(&error))?;
        let accepted = response.successful.into_iter().map(|accepted| accepted.id);
        Ok(BatchResult { accepted: accepted.collect(), failed: failed_entries(response.failed) })
    }

    fn create_command(destination: &str) -> String {
        let name = destination.rsplit('/').next().unwrap_or(destination);
        let fifo = if name.ends_with(".fifo") { " --attributes FifoQueue=true" } else { "" };
        format!("aws sqs create-queue --queue-name {name}{fifo}")
    }
}

fn build(number: usize, entry: &BatchEntry) -> Result<SendMessageBatchRequestEntry, BuildError> {
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

/// The failed entries of a batch.
pub(super) fn failed_entries(failed: Vec<BatchResultErrorEntry>) -> Vec<FailedEntry> {
    let entry = |failed: BatchResultErrorEntry| FailedEntry {
        id: failed.id,
        code: failed.code,
        message: failed.message,
        is_senders_fault: failed.sender_fault,
    };
    failed.into_iter().map(entry).collect()
}

pub(super) fn is_url(destination: &str) -> bool {
    destination.starts_with("https://") || destination.starts_with("http://")
}

pub(super) fn is_name(destination: &str) -> bool {
    aws::is_name(destination, 80)
}

pub(super) fn name_error(destination: &str) -> String {
    format!(
        "{destination:?} is not an SQS queue: write its URL, or a name of up to 80 letters, digits, - and _, with .fifo for FIFO"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_name_accepts_only_queue_names() {
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
    fn create_command_names_queue_and_fifo() {
        assert_eq!(Sqs::create_command("orders"), "aws sqs create-queue --queue-name orders");
        let fifo = "aws sqs create-queue --queue-name pay.fifo --attributes FifoQueue=true";
        assert_eq!(Sqs::create_command("https://sqs.x.amazonaws.com/1/pay.fifo"), fifo);
    }
}
