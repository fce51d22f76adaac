//! The SNS client: resolves topics and publishes batches.

use super::BYTES;
use crate::aws::{self, BatchEntry, BatchResult, FailedEntry, FailureKind, STRING, Service, ServiceError};
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_sns::{
    Client,
    error::BuildError,
    types::{MessageAttributeValue, PublishBatchRequestEntry},
};

/// The client that sends requests to SNS.
pub(super) struct Sns(pub(super) Client);

#[async_trait]
impl Service for Sns {
    const BYTES: usize = BYTES;

    fn new(config: &SdkConfig) -> Self {
        Self(Client::new(config))
    }

    /// SNS has no lookup by name but the list of all topics; `CreateTopic` would return the ARN, and create a missing topic.
    async fn resolve(&self, destination: &str) -> Result<String, ServiceError> {
        if is_arn(destination) {
            return Ok(destination.to_owned());
        }
        if !is_name(destination) {
            return Err(ServiceError::new(FailureKind::Reject, name_error(destination)));
        }
        let mut next = None;
        loop {
            let listed = self.0.list_topics().set_next_token(next).send().await;
            let listed = listed.map_err(|error| ServiceError::of(&error))?;
            let mut arns = listed.topics.unwrap_or_default().into_iter().filter_map(|topic| topic.topic_arn);
            if let Some(arn) = arns.find(|arn| arn.rsplit(':').next() == Some(destination)) {
                return Ok(arn);
            }
            next = listed.next_token.filter(|token| !token.is_empty());
            if next.is_none() {
                return Err(ServiceError::new(FailureKind::Missing, "no topic has this name".to_owned()));
            }
        }
    }

    async fn send(&self, address: &str, entries: &[&BatchEntry]) -> Result<BatchResult, ServiceError> {
        let built: Result<Vec<_>, BuildError> =
            entries.iter().enumerate().map(|(number, entry)| build(number, entry)).collect();
        let built = built.map_err(|error| ServiceError::new(FailureKind::Reject, error.to_string()))?;
        let sent = self
            .0
            .publish_batch()
            .topic_arn(address)
            .set_publish_batch_request_entries(Some(built))
            .send()
            .await;
        let response = sent.map_err(|error| ServiceError::of(&error))?;
        let failed = response.failed.unwrap_or_default().into_iter().map(|failed| FailedEntry {
            id: failed.id,
            code: failed.code,
            message: failed.message,
            is_senders_fault: failed.sender_fault,
        });
        let accepted = response.successful.unwrap_or_default().into_iter().filter_map(|accepted| accepted.id);
        Ok(BatchResult { accepted: accepted.collect(), failed: failed.collect() })
    }

    fn create_command(destination: &str) -> String {
        let name = destination.rsplit(':').next().unwrap_or(destination);
        let fifo = if name.ends_with(".fifo") { " --attributes FifoTopic=true" } else { "" };
        format!("aws sns create-topic --name {name}{fifo}")
    }
}

fn build(number: usize, entry: &BatchEntry) -> Result<PublishBatchRequestEntry, BuildError> {
    let mut request = PublishBatchRequestEntry::builder()
        .id(number.to_string())
        .message(&entry.body)
        .set_message_group_id(entry.group.clone())
        .set_message_deduplication_id(entry.deduplication.clone());
    for (name, value) in &entry.attributes {
        let value = MessageAttributeValue::builder().data_type(STRING).string_value(value).build()?;
        request = request.message_attributes(name, value);
    }
    request.build()
}

/// `arn:aws:sns:region:account:name`.
pub(super) fn is_arn(destination: &str) -> bool {
    let parts: Vec<_> = destination.split(':').collect();
    matches!(parts[..], ["arn", _, "sns", region, account, name]
        if !region.is_empty() && !account.is_empty() && is_name(name))
}

pub(super) fn is_name(destination: &str) -> bool {
    aws::is_name(destination, 256)
}

pub(super) fn name_error(destination: &str) -> String {
    format!(
        "{destination:?} is not an SNS topic: write its ARN, or a name of up to 256 letters, digits, - and _, with .fifo for FIFO"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_arn_accepts_only_topic_arns() {
        assert!(is_arn("arn:aws:sns:eu-central-1:123456789012:orders.fifo"));
        assert!(is_arn("arn:aws-cn:sns:cn-north-1:1:a"));
        for wrong in [
            "orders",
            "arn:aws:sqs:a:1:orders",
            "arn:aws:sns:a:1:",
            "arn:aws:sns:a:1:orders:sub",
            "arn:aws:sns::1:a",
        ] {
            assert!(!is_arn(wrong), "{wrong}");
        }
        assert!(is_name("orders.fifo") && !is_name("a:b") && !is_name("") && !is_name(".fifo"));
    }
}
