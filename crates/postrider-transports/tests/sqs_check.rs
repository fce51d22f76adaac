//! The findings of the checks of SQS and SNS, one by one; and none for safe settings.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs.rs"]
mod server;
mod support;

use aws_sdk_sqs::types::QueueAttributeName as Setting;
use postrider_core::{
    Finding, PublishError,
    Severity::{self, Note, Problem, Warning},
    Transport,
};
use postrider_testkit::{Kind, shared};
use postrider_transports::{sns::SnsTransport, sqs::SqsTransport};
use server::{Aws, codes, options, unique};
use support::{soon, unused_port};

async fn aws() -> Aws {
    Aws::at(&shared::url(Kind::Sqs)).await
}

async fn of_queue(destination: &str) -> Vec<Finding> {
    let sqs = SqsTransport::new(options(&shared::url(Kind::Sqs))).unwrap();
    soon(sqs.check(&[destination])).await.unwrap()
}

async fn of_topic(destination: &str) -> Vec<Finding> {
    let sns = SnsTransport::new(options(&shared::url(Kind::Sqs))).unwrap();
    soon(sns.check(&[destination])).await.unwrap()
}

/// The findings of a good queue with these settings changed.
async fn finds(settings: &[(Setting, &str)], expected: &[(Severity, &str)]) {
    let aws = aws().await;
    for ending in ["", ".fifo"] {
        let name = unique("orders") + ending;
        let redrive = aws.redrive(&(unique("dead") + ending), "1209600", 10).await;
        let mut all = vec![(Setting::RedrivePolicy, redrive.as_str())];
        all.extend_from_slice(settings);
        let url = aws.queue(&name, &all).await;
        assert_eq!(codes(&of_queue(&name).await), expected, "{name}");
        assert_eq!(codes(&of_queue(&url).await), expected, "{url}");
    }
}

#[tokio::test]
async fn check_of_good_queue_finds_nothing() {
    finds(&[], &[]).await;
}

#[tokio::test]
async fn check_reports_missing_queue() {
    assert_eq!(codes(&of_queue("missing").await), [(Problem, "no_queue")]);
    let findings = of_queue("missing.fifo").await;
    assert_eq!(findings[0].fix, "aws sqs create-queue --queue-name missing.fifo --attributes FifoQueue=true");
}

#[tokio::test]
async fn check_reports_invalid_queue_name() {
    assert_eq!(codes(&of_queue("no queue").await), [(Problem, "bad_destination")]);
}

#[tokio::test]
async fn check_reports_short_retention() {
    finds(&[(Setting::MessageRetentionPeriod, "86400")], &[(Warning, "short_retention")]).await;
}

#[tokio::test]
async fn check_reports_small_message_limit() {
    finds(&[(Setting::MaximumMessageSize, "262144")], &[(Warning, "small_messages")]).await;
}

#[tokio::test]
async fn check_reports_zero_visibility_timeout() {
    finds(&[(Setting::VisibilityTimeout, "0")], &[(Note, "no_visibility_timeout")]).await;
}

#[tokio::test]
async fn check_reports_policy_that_denies_sending() {
    let statement =
        r#"{"Sid":"no","Effect":"Deny","Principal":"*","Action":"sqs:SendMessage","Resource":"*"}"#;
    let policy = format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#);
    finds(&[(Setting::Policy, &policy)], &[(Problem, "denied")]).await;
}

#[tokio::test]
async fn check_reports_queue_without_redrive_policy() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[]).await;
    assert_eq!(codes(&of_queue(&name).await), [(Warning, "no_redrive")]);
}

#[tokio::test]
async fn check_reports_missing_dead_letter_queue() {
    let (aws, name, dead) = (aws().await, unique("orders"), unique("dead"));
    let policy = aws.redrive(&dead, "1209600", 10).await;
    aws.queue(&name, &[(Setting::RedrivePolicy, &policy)]).await;
    aws.delete(&dead).await;
    let findings = of_queue(&name).await;
    assert_eq!(codes(&findings), [(Problem, "no_dead_letter_queue")]);
    assert!(findings[0].reason.contains(&dead), "{findings:?}");
}

#[tokio::test]
async fn check_reports_short_dead_letter_retention() {
    let (aws, name) = (aws().await, unique("orders"));
    let policy = aws.redrive(&unique("dead"), "345600", 10).await;
    aws.queue(&name, &[(Setting::RedrivePolicy, &policy)]).await;
    assert_eq!(codes(&of_queue(&name).await), [(Warning, "short_dead_letters")]);
}

/// The findings of a topic with one subscription of these settings.
async fn subscription_finds(settings: &[(&str, &str)], expected: &[(Severity, &str)]) {
    let aws = aws().await;
    for ending in ["", ".fifo"] {
        let name = unique("orders") + ending;
        let (topic, queue) = (aws.topic(&name).await, aws.queue(&name, &[]).await);
        aws.subscribe(&topic, &queue, settings).await;
        assert_eq!(codes(&of_topic(&name).await), expected, "{name}");
        assert_eq!(codes(&of_topic(&topic).await), expected, "{topic}");
    }
}

const RAW: (&str, &str) = ("RawMessageDelivery", "true");
const REDRIVE: (&str, &str) =
    ("RedrivePolicy", r#"{"deadLetterTargetArn":"arn:aws:sqs:eu-central-1:123456789012:dead"}"#);

#[tokio::test]
async fn check_of_good_topic_finds_nothing() {
    subscription_finds(&[RAW, REDRIVE], &[]).await;
}

#[tokio::test]
async fn check_reports_missing_topic() {
    assert_eq!(codes(&of_topic("missing").await), [(Problem, "no_topic")]);
    let arn = "arn:aws:sns:eu-central-1:123456789012:missing";
    assert_eq!(codes(&of_topic(arn).await), [(Problem, "no_topic")]);
}

#[tokio::test]
async fn check_reports_invalid_topic_name() {
    assert_eq!(codes(&of_topic("no topic").await), [(Problem, "bad_destination")]);
}

#[tokio::test]
async fn check_reports_topic_without_subscription() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.topic(&name).await;
    assert_eq!(codes(&of_topic(&name).await), [(Problem, "no_subscription")]);
}

#[tokio::test]
async fn check_reports_subscription_without_redrive_policy() {
    subscription_finds(&[RAW], &[(Warning, "no_redrive")]).await;
}

#[tokio::test]
async fn check_reports_subscription_filter() {
    let filter = ("FilterPolicy", r#"{"color":["blue"]}"#);
    subscription_finds(&[RAW, REDRIVE, filter], &[(Warning, "filtered")]).await;
}

#[tokio::test]
async fn check_reports_subscription_without_raw_delivery() {
    subscription_finds(&[REDRIVE], &[(Note, "not_raw")]).await;
}

#[tokio::test]
async fn check_reports_unordered_subscription_of_fifo_topic() {
    let (aws, name) = (aws().await, unique("orders"));
    let (topic, queue) = (aws.topic(&format!("{name}.fifo")).await, aws.queue(&name, &[]).await);
    aws.subscribe(&topic, &queue, &[RAW, REDRIVE]).await;
    assert_eq!(codes(&of_topic(&topic).await), [(Note, "unordered")]);
}

#[tokio::test]
async fn check_without_service_is_unavailable() {
    let nowhere = options(&format!("http://127.0.0.1:{}", unused_port()));
    let asked = soon(SqsTransport::new(nowhere.clone()).unwrap().check(&["orders"])).await;
    assert!(matches!(asked, Err(PublishError::Unavailable { .. })), "{asked:?}");
    let asked = soon(SnsTransport::new(nowhere).unwrap().check(&["orders"])).await;
    assert!(matches!(asked, Err(PublishError::Unavailable { .. })), "{asked:?}");
}
