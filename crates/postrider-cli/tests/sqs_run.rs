//! `postrider run` sends to SQS and receives from it: what is delivered twice is staged once.

#![cfg(all(unix, feature = "sqs"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/health.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod health;
#[path = "support/places.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod places;
#[path = "support/program.rs"]
#[allow(dead_code, reason = "not every test program needs all of it")]
mod program;
#[path = "support/round_trip.rs"]
mod round_trip;

use postrider::transports::sqs::{AwsOptions, SqsTransport};
use postrider_testkit::{Kind, shared};
use round_trip::{Broker, round_trip};
use std::sync::Arc;
use uuid::Uuid;

const REGION: &str = "eu-central-1";

/// What moto hands to a process that was killed while it asked comes again after half a minute, so it may take as long.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_program_sends_twice_is_staged_once() {
    let (queue, url) = (format!("orders-{}", Uuid::now_v7()), shared::url(Kind::Sqs));
    places::sqs_queue(&queue, REGION);
    let options = AwsOptions::new().with_region(REGION).with_endpoint_url(&url);
    let broker = Broker {
        destination: format!("kind = \"sqs\"\nurl_env = \"SQS_URL\"\nregion = \"{REGION}\""),
        address: queue.clone(),
        source: format!("kind = \"sqs\", url_env = \"SQS_URL\", region = \"{REGION}\", queue = \"{queue}\""),
        transport: Arc::new(SqsTransport::new(options.with_credentials("test", "s3cret", None)).unwrap()),
        environment: vec![
            ("SQS_URL", url),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "s3cret".to_owned()),
        ],
    };
    round_trip(broker).await;
}
