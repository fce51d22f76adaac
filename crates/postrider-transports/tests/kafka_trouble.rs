//! Brokers that refuse, fail and go away, as librdkafka's own mock cluster plays them on request. What a real broker does by itself is in
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
use support::{PATIENCE, orders, publish, soon};

const TOPIC: &str = "orders";

type Mock = MockCluster<'static, DefaultProducerContext>;

/// Three brokers, and a topic of one partition.
fn cluster() -> Mock {
    let mock = MockCluster::new(3).unwrap();
    mock.create_topic(TOPIC, 1, 3).unwrap();
    mock
}

fn options(mock: &Mock) -> KafkaOptions {
    KafkaOptions::new(mock.bootstrap_servers())
        .with_ack_timeout(PATIENCE / 2)
        .with_connect_timeout(PATIENCE / 2)
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

/// The client cannot go on, and says so: what it had is sent again, and the next call has a new client.
#[tokio::test]
async fn a_client_that_has_failed_for_good_is_made_anew() {
    let mock = cluster();
    let transport = transport(&mock);
    mock.request_errors(Api::InitProducerId, &[Respond::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED]);
    let batch = orders(5, TOPIC);
    for answer in publish(&transport, &batch).await {
        assert!(
            matches!(answer, Err(PublishError::Unknown { .. } | PublishError::Retry { .. })),
            "{answer:?}"
        );
    }
    mock.clear_request_errors(Api::InitProducerId);
    for answer in publish(&transport, &batch).await {
        answer.unwrap();
    }
    assert_eq!(arrived(&mock).await, ids(&batch));
}

/// A leader that moves, lags or is short of replicas for a moment is waited for.
#[tokio::test]
async fn what_is_refused_for_a_moment_is_accepted_in_the_same_call() {
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
    for answer in publish(&transport, &batch).await {
        answer.unwrap();
    }
    assert_eq!(arrived(&mock).await, ids(&batch));
}

/// It goes on for longer than the call: nobody knows, since some of these refusals come after the leader has written.
#[tokio::test]
async fn replicas_that_stay_away_are_unknown_in_the_end() {
    let mock = cluster();
    let transport = options(&mock).with_ack_timeout(Duration::from_secs(2)).build().unwrap();
    publish(&transport, &orders(1, TOPIC)).await.remove(0).unwrap();
    mock.request_errors(Api::Produce, &[Respond::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND; 1_000]);
    for answer in publish(&transport, &orders(5, TOPIC)).await {
        assert!(matches!(answer, Err(PublishError::Unknown { .. })), "{answer:?}");
    }
    mock.clear_request_errors(Api::Produce);
    publish(&transport, &orders(1, TOPIC)).await.remove(0).unwrap();
}

#[tokio::test]
async fn what_may_not_be_written_is_refused_for_now_with_the_brokers_words() {
    let mock = cluster();
    let transport = transport(&mock);
    mock.request_errors(Api::Produce, &[Respond::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    let answers = publish(&transport, &orders(3, TOPIC)).await;
    for answer in &answers {
        let Err(PublishError::Retry { source, .. }) = answer else { panic!("{answers:?}") };
        assert!(source.to_string().contains("Topic authorization failed"), "{source}");
    }
    for answer in publish(&transport, &orders(3, TOPIC)).await {
        answer.unwrap();
    }
}

/// A broker that refuses a batch of records for the sake of one does not say which one: innocent ones must not become dead letters.
#[tokio::test]
async fn a_record_that_the_broker_refuses_harms_no_other() {
    let mock = cluster();
    let transport = transport(&mock);
    mock.request_errors(Api::Produce, &[Respond::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE]);
    let batch = orders(3, TOPIC);
    for answer in publish(&transport, &batch).await {
        assert!(matches!(answer, Err(PublishError::Retry { .. })), "{answer:?}");
    }
    // Now each travels alone, and the second is the one.
    mock.request_errors(
        Api::Produce,
        &[Respond::RD_KAFKA_RESP_ERR_NO_ERROR, Respond::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE],
    );
    let answers = publish(&transport, &batch[..2]).await;
    assert!(answers[0].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(PublishError::Reject { .. })), "{answers:?}");
    publish(&transport, &batch[2..]).await.remove(0).unwrap();
    assert_eq!(arrived(&mock).await, [batch[0].id.to_string(), batch[2].id.to_string()]);
}

#[tokio::test]
async fn brokers_that_go_away_are_no_success_and_come_back() {
    let mock = cluster();
    let transport = options(&mock)
        .with_ack_timeout(Duration::from_secs(2))
        .with_connect_timeout(Duration::from_secs(2))
        .build()
        .unwrap();
    publish(&transport, &orders(1, TOPIC)).await.remove(0).unwrap();
    for broker in 1..=3 {
        mock.broker_down(broker).unwrap();
    }
    let batch = orders(5, TOPIC);
    for answer in publish(&transport, &batch).await {
        assert!(matches!(answer, Err(PublishError::Unknown { .. })), "{answer:?}");
    }
    // A new client reaches nobody.
    for answer in publish(&transport, &batch).await {
        assert!(matches!(answer, Err(PublishError::Down { .. })), "{answer:?}");
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
    // Those that were given up are gone, and none of them came behind.
    assert_eq!(arrived(&mock).await[1..], ids(&batch));
}

/// A queue that holds ten messages, before a batch of two hundred.
const TINY: (&str, &str) = ("queue.buffering.max.messages", "10");

#[tokio::test]
async fn a_full_queue_is_waited_for() {
    let mock = cluster();
    let transport = options(&mock).with_property(TINY.0, TINY.1).build().unwrap();
    let batch = orders(200, TOPIC);
    for answer in publish(&transport, &batch).await {
        answer.unwrap();
    }
    assert_eq!(arrived(&mock).await, ids(&batch));
}

/// Nothing leaves the queue: what found no room was never sent, and says so.
#[tokio::test]
async fn a_queue_that_stays_full_is_refused_for_now() {
    let mock = cluster();
    let impatient = options(&mock).with_property(TINY.0, TINY.1).with_ack_timeout(Duration::from_secs(2));
    let transport = impatient.build().unwrap();
    publish(&transport, &orders(1, TOPIC)).await.remove(0).unwrap();
    for broker in 1..=3 {
        mock.broker_round_trip_time(broker, PATIENCE).unwrap();
    }
    let answers = publish(&transport, &orders(20, TOPIC)).await;
    assert!(
        answers[..10].iter().all(|answer| matches!(answer, Err(PublishError::Unknown { .. }))),
        "{answers:?}"
    );
    assert!(
        answers[10..].iter().all(|answer| matches!(answer, Err(PublishError::Retry { .. }))),
        "{answers:?}"
    );
}

fn naive(mock: &Mock, linger: &str) -> FutureProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", mock.bootstrap_servers()).set("linger.ms", linger).set(TINY.0, TINY.1);
    config.create().unwrap()
}

/// The control: a producer that takes "enqueue it" for "it is on its way" loses what found no room.
#[tokio::test]
async fn a_publisher_that_ignores_a_full_queue_loses_messages() {
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

/// The control: a producer that is dropped throws away what it has in line, whatever it said when it took it.
#[tokio::test]
async fn a_publisher_that_does_not_wait_loses_messages_when_it_is_dropped() {
    let mock = cluster();
    let (naive, batch) = (naive(&mock, "60000"), orders(5, TOPIC));
    for outgoing in &batch {
        let key = outgoing.id.to_string();
        assert!(naive.send_result(FutureRecord::to(TOPIC).key(&key).payload(&outgoing.body[..])).is_ok());
    }
    tokio::task::spawn_blocking(move || drop(naive)).await.unwrap();
    assert_eq!(Cluster::at(&mock.bootstrap_servers()).records(TOPIC).await.len(), 0);
}

/// Ours has an answer for each before it is closed.
#[tokio::test]
async fn closing_waits_for_what_is_under_way() {
    let mock = cluster();
    let transport = std::sync::Arc::new(options(&mock).with_linger(Duration::from_secs(1)).build().unwrap());
    let batch = orders(50, TOPIC);
    let publishing = {
        let (transport, batch) = (transport.clone(), batch.clone());
        tokio::spawn(async move { publish(&*transport, &batch).await })
    };
    tokio::task::yield_now().await;
    soon(transport.close()).await;
    for answer in publishing.await.unwrap() {
        answer.unwrap();
    }
    assert_eq!(arrived(&mock).await, ids(&batch));
}
