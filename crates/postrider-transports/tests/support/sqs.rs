//! Fixtures for SQS and SNS: queues and topics of a test's own, and the messages that arrive in them.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig};
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use percent_encoding::percent_decode_str;
use postrider_core::{ClientOptions, Finding, Severity};
use postrider_testkit::transport::Received;
use postrider_transports::aws::AwsOptions;
use std::collections::BTreeMap;

pub(crate) const REGION: &str = "eu-central-1";

pub(crate) fn options(url: &str) -> AwsOptions {
    options_of(super::support::client(url, super::support::PATIENCE))
}

pub(crate) fn options_of(client: ClientOptions) -> AwsOptions {
    AwsOptions::new().with_client(client).with_region(REGION).with_credentials("test", "s3cret", None)
}

/// A server, accessed with the client library alone.
#[derive(Clone)]
pub(crate) struct Aws {
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) sns: aws_sdk_sns::Client,
}

pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{}", uuid::Uuid::now_v7())
}

impl Aws {
    pub(crate) async fn at(url: &str) -> Self {
        let config = config(url).await;
        Self { sqs: aws_sdk_sqs::Client::new(&config), sns: aws_sdk_sns::Client::new(&config) }
    }

    /// A new queue with these settings; its URL.
    pub(crate) async fn queue(&self, name: &str, settings: &[(QueueAttributeName, &str)]) -> String {
        let mut request = self.sqs.create_queue().queue_name(name);
        if name.ends_with(".fifo") {
            request = request.attributes(QueueAttributeName::FifoQueue, "true");
        }
        for (setting, value) in settings {
            request = request.attributes(setting.clone(), *value);
        }
        request.send().await.unwrap().queue_url.unwrap()
    }

    pub(crate) async fn arn(&self, queue: &str) -> String {
        let asked =
            self.sqs.get_queue_attributes().queue_url(queue).attribute_names(QueueAttributeName::QueueArn);
        asked.send().await.unwrap().attributes.unwrap().remove(&QueueAttributeName::QueueArn).unwrap()
    }

    /// A redrive policy with this `maxReceiveCount`, and a new dead-letter queue with this retention in seconds.
    pub(crate) async fn redrive(&self, dead: &str, keeps: &str, receives: u32) -> String {
        let dead = self.queue(dead, &[(QueueAttributeName::MessageRetentionPeriod, keeps)]).await;
        let arn = self.arn(&dead).await;
        format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":"{receives}"}}"#)
    }

    pub(crate) async fn delete(&self, queue: &str) {
        let found = self.sqs.get_queue_url().queue_name(queue).send().await.unwrap();
        self.sqs.delete_queue().set_queue_url(found.queue_url).send().await.unwrap();
    }

    /// A new topic; its ARN.
    pub(crate) async fn topic(&self, name: &str) -> String {
        let mut request = self.sns.create_topic().name(name);
        if name.ends_with(".fifo") {
            request = request.attributes("FifoTopic", "true");
        }
        request.send().await.unwrap().topic_arn.unwrap()
    }

    /// A queue's subscription with these settings; its ARN.
    pub(crate) async fn subscribe(&self, topic: &str, queue: &str, settings: &[(&str, &str)]) -> String {
        let mut request =
            self.sns.subscribe().topic_arn(topic).protocol("sqs").endpoint(self.arn(queue).await);
        for (setting, value) in settings {
            request = request.attributes(*setting, *value);
        }
        request.send().await.unwrap().subscription_arn.unwrap()
    }

    /// Receives and deletes all messages of a queue, in their order.
    pub(crate) async fn drain(&self, queue: &str) -> Vec<Received> {
        let mut drained = Vec::new();
        loop {
            let received = self.receive(queue).await;
            if received.is_empty() {
                return drained;
            }
            let handles = received.iter().map(|message| message.receipt_handle.clone().unwrap());
            let handles = handles.enumerate().map(|(number, handle)| {
                let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
                entry.receipt_handle(handle).build().unwrap()
            });
            let deleting =
                self.sqs.delete_message_batch().queue_url(queue).set_entries(Some(handles.collect()));
            assert!(deleting.send().await.unwrap().failed.is_empty());
            drained.extend(received.into_iter().map(undo));
        }
    }

    /// Up to ten messages.
    async fn receive(&self, queue: &str) -> Vec<Message> {
        let request = self.sqs.receive_message().queue_url(queue).max_number_of_messages(10);
        let request = request.message_attribute_names("All");
        let request = request.message_system_attribute_names(MessageSystemAttributeName::All);
        request.send().await.unwrap().messages.unwrap_or_default()
    }
}

pub(crate) async fn config(url: &str) -> SdkConfig {
    let credentials = aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "tests");
    let http = aws_smithy_http_client::Builder::new().build_http();
    let loader = aws_config::defaults(BehaviorVersion::latest()).http_client(http).endpoint_url(url);
    loader
        .region(Region::new(REGION))
        .retry_config(RetryConfig::disabled())
        .credentials_provider(credentials)
        .load()
        .await
}

fn undo(message: Message) -> Received {
    let named = message.message_attributes.unwrap_or_default().into_iter().map(|(name, value)| {
        assert_eq!(value.data_type, "String", "{name}");
        (name, value.string_value.unwrap())
    });
    let mut received = decode(&message.body.unwrap(), named.collect());
    let mut system = message.attributes.unwrap_or_default();
    received.id = system.remove(&MessageSystemAttributeName::MessageDeduplicationId);
    let group = system.remove(&MessageSystemAttributeName::MessageGroupId);
    received.key = group.map(|group| percent_decode_str(&group).decode_utf8().unwrap().into_owned());
    received
}

/// Decodes the wire format as the guide describes it.
pub(crate) fn decode(body: &str, mut named: BTreeMap<String, String>) -> Received {
    assert!(named.len() <= 10, "{named:?}");
    if let Some(more) = named.remove("postrider-more") {
        for (name, value) in serde_json::from_str::<BTreeMap<String, String>>(&more).unwrap() {
            assert_eq!(named.insert(name, value), None, "each name occurs once");
        }
    }
    let body = match named.remove("content-transfer-encoding").as_deref() {
        None => body.as_bytes().to_vec(),
        Some("empty") => Vec::new(),
        Some("base64") => STANDARD.decode(body).unwrap(),
        Some(other) => panic!("{other}"),
    };
    let content_type = named.remove("content-type");
    let mut received = Received { content_type, body: body.into(), ..Received::default() };
    for (name, value) in named {
        match name.strip_prefix("ce_") {
            Some(attribute) => received.attributes.insert(attribute.to_owned(), value),
            None => received.headers.insert(name, value),
        };
    }
    received
}

pub(crate) fn codes(findings: &[Finding]) -> Vec<(Severity, &'static str)> {
    for finding in findings {
        assert!(!finding.reason.is_empty() && !finding.fix.is_empty(), "{finding:?}");
    }
    findings.iter().map(|finding| (finding.severity, finding.code)).collect()
}
