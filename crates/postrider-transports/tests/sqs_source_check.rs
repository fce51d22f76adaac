//! The findings of the SQS source's check, one by one; and none for safe settings.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqs.rs"]
mod server;
mod support;

use aws_sdk_sqs::types::QueueAttributeName as Setting;
use postrider_core::{
    Severity::{self, Note, Problem, Warning},
    Source, SourceError,
};
use postrider_testkit::{Kind, shared};
use postrider_transports::sqs::{SqsSource, SqsSourceBuilder};
use server::{Aws, codes, options, unique};
use std::time::Duration;
use support::{soon, unused_port};

async fn aws() -> Aws {
    Aws::at(&shared::url(Kind::Sqs)).await
}

fn builder(queue: &str) -> SqsSourceBuilder {
    SqsSource::builder(options(&shared::url(Kind::Sqs)), queue)
}

async fn found(builder: SqsSourceBuilder) -> Vec<(Severity, &'static str)> {
    codes(&soon(builder.build().unwrap().check()).await.unwrap())
}

/// The findings of a good queue with these settings changed, for a source with these settings.
async fn finds(
    settings: &[(Setting, &str)],
    change: impl Fn(SqsSourceBuilder) -> SqsSourceBuilder,
    expected: &[(Severity, &str)],
) {
    let aws = aws().await;
    for ending in ["", ".fifo"] {
        let name = unique("orders") + ending;
        let redrive = aws.redrive(&(unique("dead") + ending), "1209600", 10).await;
        let mut all = vec![(Setting::RedrivePolicy, redrive.as_str())];
        all.extend_from_slice(settings);
        let url = aws.queue(&name, &all).await;
        assert_eq!(found(change(builder(&name))).await, expected, "{name}");
        assert_eq!(found(change(builder(&url))).await, expected, "{url}");
    }
}

#[tokio::test]
async fn check_of_good_queue_finds_nothing() {
    finds(&[], |builder| builder, &[]).await;
}

#[tokio::test]
async fn check_reports_missing_queue() {
    assert_eq!(found(builder("missing")).await, [(Problem, "no_queue")]);
    let source = builder("missing").build().unwrap();
    let Err(SourceError::Unavailable { source }) = soon(source.receive(1)).await else {
        panic!("it is there")
    };
    assert!(source.to_string().ends_with("aws sqs create-queue --queue-name missing"), "{source}");
}

#[tokio::test]
async fn check_reports_short_retention() {
    finds(&[(Setting::MessageRetentionPeriod, "86400")], |builder| builder, &[(Warning, "short_retention")])
        .await;
}

#[tokio::test]
async fn check_notes_queue_without_redrive_policy() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[]).await;
    assert_eq!(found(builder(&name)).await, [(Note, "no_redrive")]);
}

/// The findings of a queue whose redrive policy names a dead-letter queue with this retention, after this many receives.
async fn of_dead_letters(keeps: &str, receives: u32, is_there: bool) -> Vec<(Severity, &'static str)> {
    let (aws, name, dead) = (aws().await, unique("orders"), unique("dead"));
    let policy = aws.redrive(&dead, keeps, receives).await;
    aws.queue(&name, &[(Setting::RedrivePolicy, &policy)]).await;
    if !is_there {
        aws.delete(&dead).await;
    }
    found(builder(&name)).await
}

#[tokio::test]
async fn check_reports_small_max_receive_count() {
    assert_eq!(of_dead_letters("1209600", 9, true).await, [(Warning, "low_max_receive_count")]);
}

#[tokio::test]
async fn check_reports_missing_dead_letter_queue() {
    assert_eq!(of_dead_letters("1209600", 10, false).await, [(Problem, "no_dead_letter_queue")]);
}

#[tokio::test]
async fn check_reports_short_dead_letter_retention() {
    assert_eq!(of_dead_letters("345600", 10, true).await, [(Warning, "short_dead_letters")]);
}

#[tokio::test]
async fn check_reports_short_visibility_timeout() {
    let short = |builder: SqsSourceBuilder| builder.with_visibility_timeout(Duration::from_secs(9));
    finds(&[], short, &[(Warning, "short_visibility")]).await;
}

#[tokio::test]
async fn check_reports_missing_reject_queue() {
    finds(&[], |builder| builder.with_reject_to("missing"), &[(Problem, "no_refused_queue")]).await;
}

#[tokio::test]
async fn redelivery_window_is_the_retention_of_the_queue() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[(Setting::MessageRetentionPeriod, "86400")]).await;
    let redelivers = soon(builder(&name).build().unwrap().redelivery_window()).await.unwrap();
    assert_eq!(redelivers.within, Some(Duration::from_secs(86_400)));
    assert!(redelivers.reason.contains("MessageRetentionPeriod"), "{redelivers:?}");
}

#[tokio::test]
async fn check_without_service_is_unavailable() {
    let nowhere = options(&format!("http://127.0.0.1:{}", unused_port()));
    let source = SqsSource::connect(nowhere, "orders").unwrap();
    assert!(matches!(soon(source.check()).await, Err(SourceError::Unavailable { .. })));
    assert!(matches!(soon(source.redelivery_window()).await, Err(SourceError::Unavailable { .. })));
}

#[tokio::test]
async fn invalid_settings_are_refused_with_reason() {
    let wrong = [
        (builder("no queue"), "queue: "),
        (builder("orders").with_reject_to("a.b"), "queue: "),
        (builder("orders").with_reject_to("orders"), "reject_to: "),
        (builder("orders").with_visibility_timeout(Duration::ZERO), "visibility_timeout: "),
        (builder("orders").with_visibility_timeout(Duration::from_secs(43_201)), "visibility_timeout: "),
        (builder("orders").with_wait(Duration::from_secs(21)), "wait: "),
        (builder("orders").with_prefetch(0), "prefetch: "),
        (builder("orders").with_concurrency(0), "prefetch: "),
        (SqsSource::builder(options("nowhere"), "orders"), "url: "),
    ];
    for (builder, expected) in wrong {
        let error = builder.build().map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(!format!("{:?}", builder("orders").build()).contains("s3cret"), "access keys are not shown");
}
