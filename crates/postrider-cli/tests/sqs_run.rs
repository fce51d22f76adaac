//! `postrider run` sends to SQS and receives from it: a message that is delivered twice is staged once.

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

/// The same settings as in the configuration file and the environment.
fn options() -> AwsOptions {
    let options = AwsOptions::new().with_region(REGION).with_client(shared::url(Kind::Sqs));
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

/// moto redelivers messages of a killed process after its visibility timeout of half a minute, so the test may take as long.
#[tokio::test(flavor = "multi_thread")]
async fn round_trip_with_duplicates_and_a_kill_stages_each_message_once() {
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

/// The round trip by an SNS topic, which forwards to the SQS queue.
#[cfg(feature = "sns")]
#[tokio::test(flavor = "multi_thread")]
async fn message_to_an_sns_topic_arrives_in_its_queue() {
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
