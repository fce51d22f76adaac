//! What the check of a source of SQS finds, one by one; and nothing where nothing is wrong.

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

/// What a good queue with these settings is told, for a source that was changed like this.
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
async fn a_good_queue_has_no_findings() {
    finds(&[], |builder| builder, &[]).await;
}

#[tokio::test]
async fn a_missing_queue_is_told() {
    assert_eq!(found(builder("missing")).await, [(Problem, "no_queue")]);
    let source = builder("missing").build().unwrap();
    let Err(SourceError::Down { source }) = soon(source.receive(1)).await else { panic!("it is there") };
    assert!(source.to_string().ends_with("aws sqs create-queue --queue-name missing"), "{source}");
}

#[tokio::test]
async fn a_short_retention_is_told() {
    finds(&[(Setting::MessageRetentionPeriod, "86400")], |builder| builder, &[(Warning, "short_retention")])
        .await;
}

#[tokio::test]
async fn a_queue_without_dead_letters_is_told() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[]).await;
    assert_eq!(found(builder(&name)).await, [(Note, "no_redrive")]);
}

/// What a queue is told that gives up to a queue that keeps for so long, after so many receives.
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
async fn a_queue_that_gives_up_soon_is_told() {
    assert_eq!(of_dead_letters("1209600", 9, true).await, [(Warning, "few_receives")]);
}

#[tokio::test]
async fn a_missing_dead_letter_queue_is_told() {
    assert_eq!(of_dead_letters("1209600", 10, false).await, [(Problem, "no_dead_letter_queue")]);
}

#[tokio::test]
async fn dead_letters_that_do_not_outlive_their_queue_are_told() {
    assert_eq!(of_dead_letters("345600", 10, true).await, [(Warning, "short_dead_letters")]);
}

#[tokio::test]
async fn a_short_visibility_timeout_is_told() {
    let short = |builder: SqsSourceBuilder| builder.with_visibility_timeout(Duration::from_secs(9));
    finds(&[], short, &[(Warning, "short_visibility")]).await;
}

#[tokio::test]
async fn a_missing_queue_for_what_is_refused_is_told() {
    finds(&[], |builder| builder.with_refused_to("missing"), &[(Problem, "no_refused_queue")]).await;
}

#[tokio::test]
async fn for_how_long_messages_come_again_is_the_retention() {
    let (aws, name) = (aws().await, unique("orders"));
    aws.queue(&name, &[(Setting::MessageRetentionPeriod, "86400")]).await;
    let redelivers = soon(builder(&name).build().unwrap().redelivers()).await.unwrap();
    assert_eq!(redelivers.within, Some(Duration::from_secs(86_400)));
    assert!(redelivers.because.contains("MessageRetentionPeriod"), "{redelivers:?}");
}

#[tokio::test]
async fn a_service_that_is_not_there_cannot_be_asked() {
    let nowhere = options(&format!("http://127.0.0.1:{}", unused_port()));
    let source = SqsSource::connect(nowhere, "orders").unwrap();
    assert!(matches!(soon(source.check()).await, Err(SourceError::Down { .. })));
    assert!(matches!(soon(source.redelivers()).await, Err(SourceError::Down { .. })));
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused_in_words() {
    let wrong = [
        (builder("no queue"), "queue: "),
        (builder("orders").with_refused_to("a.b"), "queue: "),
        (builder("orders").with_refused_to("orders"), "refused_to: "),
        (builder("orders").with_visibility_timeout(Duration::ZERO), "visibility_timeout: "),
        (builder("orders").with_visibility_timeout(Duration::from_secs(43_201)), "visibility_timeout: "),
        (builder("orders").with_wait(Duration::from_secs(21)), "wait: "),
        (builder("orders").with_prefetch(0), "prefetch: "),
        (builder("orders").with_requests(0), "prefetch: "),
        (SqsSource::builder(options("nowhere"), "orders"), "endpoint_url: "),
    ];
    for (builder, expected) in wrong {
        let error = builder.build().map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(!format!("{:?}", builder("orders").build()).contains("s3cret"), "keys are not shown");
}
