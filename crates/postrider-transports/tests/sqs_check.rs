//! What the checks of SQS and SNS find, one by one; and nothing where nothing is wrong.

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

/// What a good queue with these settings is told.
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
async fn a_good_queue_has_no_findings() {
    finds(&[], &[]).await;
}

#[tokio::test]
async fn a_missing_queue_is_told() {
    assert_eq!(codes(&of_queue("missing").await), [(Problem, "no_queue")]);
    let findings = of_queue("missing.fifo").await;
    assert_eq!(findings[0].fix, "aws sqs create-queue --queue-name missing.fifo --attributes FifoQueue=true");
}

#[tokio::test]
async fn what_names_no_queue_is_told() {
    assert_eq!(codes(&of_queue("no queue").await), [(Problem, "bad_destination")]);
}

#[tokio::test]
async fn a_short_retention_is_told() {
    finds(&[(Setting::MessageRetentionPeriod, "86400")], &[(Warning, "short_retention")]).await;
}

#[tokio::test]
async fn a_limit_below_ours_is_told() {
    finds(&[(Setting::MaximumMessageSize, "262144")], &[(Warning, "small_messages")]).await;
}

#[tokio::test]
async fn messages_that_are_never_hidden_are_told() {
    finds(&[(Setting::VisibilityTimeout, "0")], &[(Note, "no_visibility_timeout")]).await;
}

#[tokio::test]
async fn a_policy_that_denies_everybody_is_told() {
    let statement =
        r#"{"Sid":"no","Effect":"Deny","Principal":"*","Action":"sqs:SendMessage","Resource":"*"}"#;
    let policy = format!(r#"{{"Version":"2012-10-17","Statement":[{statement}]}}"#);
    finds(&[(Setting::Policy, &policy)], &[(Problem, "denied")]).await;
}

#[tokio::test]
async fn a_queue_without_dead_letters_is_told() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[]).await;
    assert_eq!(codes(&of_queue(&name).await), [(Warning, "no_redrive")]);
}

#[tokio::test]
async fn a_missing_dead_letter_queue_is_told() {
    let (aws, name, dead) = (aws().await, unique("orders"), unique("dead"));
    let policy = aws.redrive(&dead, "1209600", 10).await;
    aws.queue(&name, &[(Setting::RedrivePolicy, &policy)]).await;
    aws.delete(&dead).await;
    let findings = of_queue(&name).await;
    assert_eq!(codes(&findings), [(Problem, "no_dead_letter_queue")]);
    assert!(findings[0].reason.contains(&dead), "{findings:?}");
}

#[tokio::test]
async fn dead_letters_that_do_not_outlive_their_queue_are_told() {
    let (aws, name) = (aws().await, unique("orders"));
    let policy = aws.redrive(&unique("dead"), "345600", 10).await;
    aws.queue(&name, &[(Setting::RedrivePolicy, &policy)]).await;
    assert_eq!(codes(&of_queue(&name).await), [(Warning, "short_dead_letters")]);
}

/// What a topic with one subscription of these settings is told.
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
async fn a_good_topic_has_no_findings() {
    subscription_finds(&[RAW, REDRIVE], &[]).await;
}

#[tokio::test]
async fn a_missing_topic_is_told() {
    assert_eq!(codes(&of_topic("missing").await), [(Problem, "no_topic")]);
    let arn = "arn:aws:sns:eu-central-1:123456789012:missing";
    assert_eq!(codes(&of_topic(arn).await), [(Problem, "no_topic")]);
}

#[tokio::test]
async fn what_names_no_topic_is_told() {
    assert_eq!(codes(&of_topic("no topic").await), [(Problem, "bad_destination")]);
}

#[tokio::test]
async fn a_topic_that_nobody_hears_is_told() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.topic(&name).await;
    assert_eq!(codes(&of_topic(&name).await), [(Problem, "no_subscription")]);
}

#[tokio::test]
async fn a_subscription_without_dead_letters_is_told() {
    subscription_finds(&[RAW], &[(Warning, "no_redrive")]).await;
}

#[tokio::test]
async fn a_subscription_that_leaves_messages_out_is_told() {
    let filter = ("FilterPolicy", r#"{"color":["blue"]}"#);
    subscription_finds(&[RAW, REDRIVE, filter], &[(Warning, "filtered")]).await;
}

#[tokio::test]
async fn a_subscription_that_wraps_messages_is_told() {
    subscription_finds(&[REDRIVE], &[(Note, "not_raw")]).await;
}

#[tokio::test]
async fn a_subscription_that_keeps_no_order_is_told() {
    let (aws, name) = (aws().await, unique("orders"));
    let (topic, queue) = (aws.topic(&format!("{name}.fifo")).await, aws.queue(&name, &[]).await);
    aws.subscribe(&topic, &queue, &[RAW, REDRIVE]).await;
    assert_eq!(codes(&of_topic(&topic).await), [(Note, "unordered")]);
}

#[tokio::test]
async fn a_service_that_is_not_there_cannot_be_asked() {
    let nowhere = options(&format!("http://127.0.0.1:{}", unused_port()));
    let asked = soon(SqsTransport::new(nowhere.clone()).unwrap().check(&["orders"])).await;
    assert!(matches!(asked, Err(PublishError::Down { .. })), "{asked:?}");
    let asked = soon(SnsTransport::new(nowhere).unwrap().check(&["orders"])).await;
    assert!(matches!(asked, Err(PublishError::Down { .. })), "{asked:?}");
}
