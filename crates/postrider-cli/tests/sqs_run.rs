//! `postrider run` sends to SQS and receives from it: what is delivered twice is staged once.

#![cfg(all(unix, feature = "sqs"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::transports::sns::SnsTransport;
use postrider::transports::sqs::{AwsOptions, SqsTransport};
use postrider_testkit::{Kind, shared};
use std::sync::Arc;
#[cfg(feature = "sns")]
use support::{
    places,
    round_trip::{Broker, round_trip},
};
use uuid::Uuid;

const REGION: &str = "eu-central-1";

/// What the program's file and its environment say.
fn options() -> AwsOptions {
    let options = AwsOptions::new().with_region(REGION).with_endpoint_url(shared::url(Kind::Sqs));
    options.with_credentials("test", "s3cret", None)
}

fn environment() -> Vec<(&'static str, String)> {
    vec![
        ("AWS_URL", shared::url(Kind::Sqs)),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "s3cret".to_owned()),
    ]
}

fn source(queue: &str) -> String {
    format!("kind = \"sqs\", url_env = \"AWS_URL\", region = \"{REGION}\", queue = \"{queue}\"")
}

/// What moto hands to a process that was killed while it asked comes again after half a minute, so it may take as long.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_program_sends_twice_is_staged_once() {
    let queue = format!("orders-{}", Uuid::now_v7());
    places::sqs_queue(&queue, REGION);
    let broker = Broker {
        destination: format!("kind = \"sqs\"\nurl_env = \"AWS_URL\"\nregion = \"{REGION}\""),
        source: source(&queue),
        address: queue,
        transport: Arc::new(SqsTransport::new(options()).unwrap()),
        environment: environment(),
    };
    round_trip(broker).await;
}

/// The same by a topic, which hands on to the queue.
#[cfg(feature = "sns")]
#[tokio::test(flavor = "multi_thread")]
async fn what_goes_to_a_topic_is_in_its_queue() {
    let topic = format!("orders-{}", Uuid::now_v7());
    places::sns_topic(&topic, REGION);
    let broker = Broker {
        destination: format!("kind = \"sns\"\nurl_env = \"AWS_URL\"\nregion = \"{REGION}\""),
        source: source(&topic),
        address: topic,
        transport: Arc::new(SnsTransport::new(options()).unwrap()),
        environment: environment(),
    };
    round_trip(broker).await;
}
