//! `postrider run` sends to Kafka and receives from it: a message that is delivered twice is staged once.

#![cfg(all(unix, feature = "kafka"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::transports::kafka::KafkaTransport;
use postrider_testkit::{Kind, shared};
use std::sync::Arc;
use support::{
    places,
    round_trip::{Broker, round_trip},
};
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread")]
async fn round_trip_with_duplicates_and_a_kill_stages_each_message_once() {
    let (topic, url) = (format!("orders-{}", Uuid::now_v7()), shared::url(Kind::Kafka));
    places::kafka_topic(&topic);
    let broker = Broker {
        destination: "kind = \"kafka\"\nurl_env = \"KAFKA_URL\"".to_owned(),
        address: topic.clone(),
        // With static membership the process gets its partition back as soon as it restarts.
        source: format!(
            "kind = \"kafka\", url_env = \"KAFKA_URL\", topic = \"{topic}\", group = \"{topic}\", instance = \"billing-1\""
        ),
        transport: Arc::new(KafkaTransport::connect(url.as_str()).unwrap()),
        environment: vec![("KAFKA_URL", url)],
    };
    round_trip(broker).await;
}
