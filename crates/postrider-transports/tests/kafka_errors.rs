//! Brokers that refuse, fail and disconnect, simulated by librdkafka's own mock cluster. The behaviour of a real broker is tested in
//! `kafka.rs` and `kafka_faults.rs`.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka.rs"]
mod server;
mod support;

use postrider_core::{Outgoing, PublishError, Transport};
use postrider_transports::kafka::{KafkaOptions, KafkaTransport};
use rdkafka::{
    ClientConfig,
    mocking::MockCluster,
    producer::{DefaultProducerContext, FutureProducer, FutureRecord, Producer},
    types::{RDKafkaApiKey as Api, RDKafkaRespErr as Respond},
};
use server::Cluster;
use std::time::Duration;
use support::{PATIENCE, client, orders, publish, soon};

const TOPIC: &str = "orders";

type Mock = MockCluster<'static, DefaultProducerContext>;

/// Three brokers, and a topic of one partition.
fn cluster() -> Mock {
    let mock = MockCluster::new(3).unwrap();
    mock.create_topic(TOPIC, 1, 3).unwrap();
    mock
}

fn options(mock: &Mock) -> KafkaOptions {
    options_within(mock, PATIENCE / 2)
}

fn options_within(mock: &Mock, timeout: Duration) -> KafkaOptions {
    KafkaOptions::new(client(mock.bootstrap_servers(), timeout))
}

fn transport(mock: &Mock) -> KafkaTransport {
    options(mock).build().unwrap()
}

async fn arrived(mock: &Mock) -> Vec<String> {
    let records = Cluster::at(&mock.bootstrap_servers()).records(TOPIC).await;
    records.into_iter().map(|record| record.received.identity().to_owned()).collect()
}

fn ids(batch: &[Outgoing]) -> Vec<String> {
    batch.iter().map(|outgoing| outgoing.id.to_string()).collect()
}

/// The client reports a fatal error: its messages are retried, and the next call has a new client.
#[tokio::test]
async fn client_with_fatal_error_is_recreated() {
    let mock = cluster();
    let transport = transport(&mock);
    mock.request_errors(Api::InitProducerId, &[Respond::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED]);
    let batch = orders(5, TOPIC);
    for result in publish(&transport, &batch).await {
        assert!(
            matches!(result, Err(PublishError::Unknown { .. } | PublishError::Retry { .. })),
            "{result:?}"
        );
    }
    mock.clear_request_errors(Api::InitProducerId);
    for result in publish(&transport, &batch).await {
        result.unwrap();
    }
    assert_eq!(arrived(&mock).await, ids(&batch));
}

/// The client waits for a leader that moves, lags or briefly lacks replicas.
#[tokio::test]
async fn transient_refusal_is_retried_within_the_call() {
    let mock = cluster();
    let transport = transport(&mock);
    mock.request_errors(
        Api::Produce,
        &[
            Respond::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
            Respond::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
            Respond::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ],
    );
    let batch = orders(5, TOPIC);
    for result in publish(&transport, &batch).await {
        result.unwrap();
    }
    assert_eq!(arrived(&mock).await, ids(&batch));
}

/// The refusal lasts longer than the call: the result is unknown, because the leader sends some of these refusals after it has written.
#[tokio::test]
async fn missing_replicas_until_timeout_are_unknown() {
    let mock = cluster();
    let transport = options_within(&mock, Duration::from_secs(2)).build().unwrap();
    publish(&transport, &orders(1, TOPIC)).await.remove(0).unwrap();
    mock.request_errors(Api::Produce, &[Respond::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND; 1_000]);
    for result in publish(&transport, &orders(5, TOPIC)).await {
        assert!(matches!(result, Err(PublishError::Unknown { .. })), "{result:?}");
    }
    mock.clear_request_errors(Api::Produce);
    publish(&transport, &orders(1, TOPIC)).await.remove(0).unwrap();
}

#[tokio::test]
async fn missing_permission_makes_the_topic_unavailable() {
    let mock = cluster();
    let transport = transport(&mock);
    mock.request_errors(Api::Produce, &[Respond::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    let results = publish(&transport, &orders(3, TOPIC)).await;
    for result in &results {
        let Err(PublishError::AddressUnavailable { source }) = result else { panic!("{results:?}") };
        assert!(source.to_string().contains("Topic authorization failed"), "{source}");
    }
    for result in publish(&transport, &orders(3, TOPIC)).await {
        result.unwrap();
    }
}

/// A broker that refuses a batch of records because of one does not say which one: the others must not become dead letters.
#[tokio::test]
async fn refused_record_harms_no_other() {
    let mock = cluster();
    let transport = transport(&mock);
    mock.request_errors(Api::Produce, &[Respond::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    let batch = orders(3, TOPIC);
    for result in publish(&transport, &batch).await {
        assert!(matches!(result, Err(PublishError::Retry { .. })), "{result:?}");
    }
    // Now each record is sent alone, and the second is the bad one.
    mock.request_errors(
        Api::Produce,
        &[Respond::RD_KAFKA_RESP_ERR_NO_ERROR, Respond::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE],
    );
    let results = publish(&transport, &batch[..2]).await;
    assert!(results[0].is_ok(), "{results:?}");
    assert!(matches!(results[1], Err(PublishError::Reject { .. })), "{results:?}");
    publish(&transport, &batch[2..]).await.remove(0).unwrap();
    assert_eq!(arrived(&mock).await, [batch[0].id.to_string(), batch[2].id.to_string()]);
}

#[tokio::test]
async fn broker_outage_is_no_success_and_recovers() {
    let mock = cluster();
    let transport = options_within(&mock, Duration::from_secs(2)).build().unwrap();
    publish(&transport, &orders(1, TOPIC)).await.remove(0).unwrap();
    for broker in 1..=3 {
        mock.broker_down(broker).unwrap();
    }
    let batch = orders(5, TOPIC);
    for result in publish(&transport, &batch).await {
        assert!(matches!(result, Err(PublishError::Unknown { .. })), "{result:?}");
    }
    // A new client reaches no broker.
    for result in publish(&transport, &batch).await {
        assert!(matches!(result, Err(PublishError::Unavailable { .. })), "{result:?}");
    }
    for broker in 1..=3 {
        mock.broker_up(broker).unwrap();
    }
    soon(async {
        while !transport.publish(&batch).await.iter().all(Result::is_ok) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Messages of cancelled calls were dropped, and none arrived later.
    assert_eq!(arrived(&mock).await[1..], ids(&batch));
}

/// A client queue of ten messages, for a batch of two hundred.
const TINY: (&str, &str) = ("queue.buffering.max.messages", "10");

#[tokio::test]
async fn full_client_queue_is_waited_for() {
    let mock = cluster();
    let transport = options(&mock).with_property(TINY.0, TINY.1).build().unwrap();
    let batch = orders(200, TOPIC);
    for result in publish(&transport, &batch).await {
        result.unwrap();
    }
    assert_eq!(arrived(&mock).await, ids(&batch));
}

/// Nothing leaves the queue: messages that found no space were never sent, and their results say so.
#[tokio::test]
async fn client_queue_that_stays_full_is_retried() {
    let mock = cluster();
    let impatient = options_within(&mock, Duration::from_secs(2)).with_property(TINY.0, TINY.1);
    let transport = impatient.build().unwrap();
    publish(&transport, &orders(1, TOPIC)).await.remove(0).unwrap();
    for broker in 1..=3 {
        mock.broker_round_trip_time(broker, PATIENCE).unwrap();
    }
    let results = publish(&transport, &orders(20, TOPIC)).await;
    assert!(
        results[..10].iter().all(|result| matches!(result, Err(PublishError::Unknown { .. }))),
        "{results:?}"
    );
    assert!(
        results[10..].iter().all(|result| matches!(result, Err(PublishError::Retry { .. }))),
        "{results:?}"
    );
}

fn naive(mock: &Mock, linger: &str) -> FutureProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", mock.bootstrap_servers()).set("linger.ms", linger).set(TINY.0, TINY.1);
    config.create().unwrap()
}

/// Control: a producer that ignores a failed enqueue loses the messages that found no space.
#[tokio::test]
async fn control_publisher_that_ignores_full_queue_loses_messages() {
    let mock = cluster();
    let (naive, batch) = (naive(&mock, "100"), orders(200, TOPIC));
    for outgoing in &batch {
        let (key, headers) = (outgoing.id.to_string(), rdkafka::message::OwnedHeaders::new());
        let record = FutureRecord::to(TOPIC).key(&key).payload(&outgoing.body[..]).headers(headers);
        naive.send_result(record).ok();
    }
    let flushing = tokio::task::spawn_blocking(move || naive.flush(PATIENCE));
    soon(flushing).await.unwrap().unwrap();
    let there = Cluster::at(&mock.bootstrap_servers()).records(TOPIC).await.len();
    assert!(there < batch.len(), "all {there} arrived");
}

/// Control: a producer that is dropped discards its queue, although it accepted the messages.
#[tokio::test]
async fn control_publisher_dropped_without_flush_loses_messages() {
    let mock = cluster();
    let (naive, batch) = (naive(&mock, "60000"), orders(5, TOPIC));
    for outgoing in &batch {
        let key = outgoing.id.to_string();
        assert!(naive.send_result(FutureRecord::to(TOPIC).key(&key).payload(&outgoing.body[..])).is_ok());
    }
    tokio::task::spawn_blocking(move || drop(naive)).await.unwrap();
    assert_eq!(Cluster::at(&mock.bootstrap_servers()).records(TOPIC).await.len(), 0);
}

/// Our transport returns a result for each message before it is closed.
#[tokio::test]
async fn close_waits_for_messages_in_flight() {
    let mock = cluster();
    let transport = std::sync::Arc::new(options(&mock).with_linger(Duration::from_secs(1)).build().unwrap());
    let batch = orders(50, TOPIC);
    let publishing = {
        let (transport, batch) = (transport.clone(), batch.clone());
        tokio::spawn(async move { publish(&*transport, &batch).await })
    };
    tokio::task::yield_now().await;
    soon(transport.close()).await;
    for result in publishing.await.unwrap() {
        result.unwrap();
    }
    assert_eq!(arrived(&mock).await, ids(&batch));
}
