//! Consumers of Kafka pass the suite, on a server that all tests share and on one that is killed; and what is special to groups.
//!
//! Both servers are Tansu. There, a group may be left without partitions when its leader goes while another consumer is joining: Tansu 0.6 takes
//! the other one's empty list for the leader's. So the case of two consumers runs on librdkafka's mock cluster, as do those that need refusals
//! on request or a partition that moves. The mock cluster cannot be killed, nor stand behind a proxy.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka_source.rs"]
mod fixture;
#[path = "support/kafka.rs"]
mod server;
mod support;

use fixture::{builder, mock_cluster, own_server, send, shared_server};
use postrider_core::{Answer, Parcel, Source, SourceError};
use postrider_testkit::{
    Kind,
    process::{Process, told},
    shared,
};
use postrider_transports::kafka::{KafkaSource, KafkaSourceBuilder};
use rdkafka::{
    mocking::MockCluster,
    producer::DefaultProducerContext,
    types::{RDKafkaApiKey as Api, RDKafkaRespErr as Respond},
};
use server::{Cluster, GOOD};
use std::{collections::BTreeSet, time::Duration};
use support::{orders, soon};

mod on_a_shared_server {
    postrider_testkit::source_suite!(super::shared_server);
}

mod on_a_server_that_crashes {
    postrider_testkit::source_suite!(super::own_server);
}

mod on_a_mock_cluster {
    postrider_testkit::source_suite!(super::mock_cluster);
}

type Mock = MockCluster<'static, DefaultProducerContext>;

const TOPIC: &str = "orders";

/// A cluster with a topic of so many partitions, and so many messages in it.
async fn filled(partitions: i32, count: usize) -> Mock {
    let mock = MockCluster::new(1).unwrap();
    mock.create_topic(TOPIC, partitions, 1).unwrap();
    send(&mock.bootstrap_servers(), &orders(count, TOPIC)).await;
    mock
}

fn source(mock: &Mock) -> KafkaSource {
    builder(&mock.bootstrap_servers(), TOPIC).build().unwrap()
}

async fn receive(source: &KafkaSource, count: usize) -> Vec<Parcel> {
    let mut parcels = Vec::new();
    while parcels.len() < count {
        parcels.extend(soon(source.receive(count - parcels.len())).await.unwrap());
    }
    parcels
}

async fn answer(source: &KafkaSource, parcels: &[Parcel], with: Answer) -> Vec<Result<(), SourceError>> {
    let answers: Vec<_> = parcels.iter().map(|parcel| (parcel.ticket.clone(), with)).collect();
    soon(source.answer(&answers)).await
}

async fn done(source: &KafkaSource, parcels: &[Parcel]) {
    for told in answer(source, parcels, Answer::Done).await {
        told.unwrap();
    }
}

fn numbers(parcels: &[Parcel]) -> Vec<u32> {
    parcels.iter().map(|parcel| String::from_utf8_lossy(&parcel.incoming.body).parse().unwrap()).collect()
}

/// A consumer that joins takes a partition from another one. What was done there is committed first, the rest comes to the new one, and
/// the old one is told that it is late.
///
/// Where a member is slow to join, the mock shares out a second time and refuses commits meanwhile: what was done comes again then, as it
/// may. It must not do so each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_that_moves_takes_along_what_is_not_done() {
    for _ in 0..5 {
        if moves_without_what_is_done().await {
            return;
        }
    }
    panic!("what was done came again each time");
}

/// Whether only what was not done came to the consumer that joined.
async fn moves_without_what_is_done() -> bool {
    const COUNT: usize = 1_000;
    let mock = filled(2, COUNT).await;
    let first = source(&mock);
    let mut open = receive(&first, COUNT).await;
    // As they were sent: some of both partitions are done, whichever moves.
    open.sort_by_key(|parcel| numbers(std::slice::from_ref(parcel)));
    let second = source(&mock);
    let (moved, told) = tokio::join!(soon(second.receive(COUNT)), answer_until_late(&first, &open));
    let mut moved = moved.unwrap();
    let is_stale = |told: &Result<(), SourceError>| matches!(told, Err(SourceError::Stale { .. }));
    assert!(told.iter().all(|told| told.is_ok() || is_stale(told)), "{told:?}");
    let lost: BTreeSet<u32> = numbers(&open)
        .into_iter()
        .zip(&told)
        .filter(|(_, told)| is_stale(told))
        .map(|(number, _)| number)
        .collect();
    assert!(!lost.is_empty() && lost.len() < COUNT, "{lost:?}");
    let came = |moved: &[Parcel]| numbers(moved).into_iter().collect::<BTreeSet<_>>();
    while !lost.is_subset(&came(&moved)) {
        moved.extend(soon(second.receive(COUNT)).await.unwrap());
    }
    done(&second, &moved).await;
    soon(async { tokio::join!(first.close(), second.close()) }).await;
    let last = orders(COUNT + 1, TOPIC).split_off(COUNT);
    send(&mock.bootstrap_servers(), &last).await;
    assert_eq!(numbers(&receive(&source(&mock), 1).await), [1_000], "something else came again");
    came(&moved) == lost
}

/// Says of one after the other that it is done, up to the moment at which a partition is taken away, so that there is always something
/// that was not committed before; and then of all the rest.
async fn answer_until_late(source: &KafkaSource, parcels: &[Parcel]) -> Vec<Result<(), SourceError>> {
    let mut told = Vec::new();
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    while told.iter().all(Result::is_ok) && told.len() < parcels.len() {
        pace.tick().await;
        told.extend(answer(source, &parcels[told.len()..=told.len()], Answer::Done).await);
    }
    told.extend(answer(source, &parcels[told.len()..], Answer::Done).await);
    told
}

/// Kafka remembers one number: what is done behind what is not comes again with it.
#[tokio::test]
async fn nothing_is_committed_past_what_waits() {
    let mock = filled(1, 5).await;
    let first = source(&mock);
    let parcels = receive(&first, 5).await;
    assert_eq!(numbers(&parcels), [0, 1, 2, 3, 4]);
    done(&first, &parcels[..1]).await;
    answer(&first, &parcels[1..2], Answer::Again { after: Duration::from_secs(3_600) })
        .await
        .remove(0)
        .unwrap();
    done(&first, &parcels[2..]).await;
    soon(first.close()).await;
    assert!(matches!(answer(&first, &parcels[..1], Answer::Done).await[0], Err(SourceError::Stale { .. })));
    let heir = source(&mock);
    assert_eq!(numbers(&receive(&heir, 4).await), [1, 2, 3, 4], "at once, with what is behind it");
}

#[tokio::test]
async fn a_partition_holds_no_more_than_was_asked_for() {
    const MOST: usize = 4;
    let mock = filled(2, 100).await;
    let source = builder(&mock.bootstrap_servers(), TOPIC).with_prefetch(MOST).build().unwrap();
    let mut came = BTreeSet::new();
    while came.len() < 100 {
        let parcels = soon(source.receive(100)).await.unwrap();
        assert!(parcels.len() <= 2 * MOST, "{} were in hand at once", parcels.len());
        came.extend(numbers(&parcels));
        done(&source, &parcels).await;
    }
}

/// What the cluster did not take is told to it again, at the latest when the source is closed.
#[tokio::test]
async fn a_commit_that_fails_is_made_again() {
    let mock = filled(1, 10).await;
    let first = source(&mock);
    let parcels = receive(&first, 10).await;
    mock.request_errors(
        Api::OffsetCommit,
        &[Respond::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS, Respond::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS],
    );
    done(&first, &parcels).await;
    soon(first.close()).await;
    send(&mock.bootstrap_servers(), &orders(1, TOPIC)).await;
    let heir = source(&mock);
    assert_eq!(numbers(&receive(&heir, 1).await), [0], "only the new one");
}

#[tokio::test]
async fn a_topic_that_nobody_made_is_told_and_found_once_it_is_there() {
    let url = shared::url(Kind::Kafka);
    let topic = format!("t-{}", uuid::Uuid::now_v7().simple());
    let source = builder(&url, &topic).build().unwrap();
    for _ in 0..2 {
        let error = soon(source.receive(1)).await.unwrap_err().to_string();
        assert!(error.contains(&format!("there is no topic {topic}: kafka-topics.sh")), "{error}");
    }
    assert!(!Cluster::at(&url).exists(&topic).await, "asking for it has made it");
    Cluster::at(&url).create(&topic, 1, 1, &[]).await;
    send(&url, &orders(1, &topic)).await;
    let received = soon(async {
        loop {
            if let Ok(parcels) = source.receive(1).await {
                break parcels;
            }
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(numbers(&received.await), [0]);
}

#[tokio::test]
async fn who_may_not_read_is_told_in_the_clusters_words() {
    let mock = filled(1, 1).await;
    mock.request_errors(Api::JoinGroup, &[Respond::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED]);
    let source = source(&mock);
    let error = soon(source.receive(1)).await.unwrap_err().to_string();
    assert!(error.to_lowercase().contains("authorization failed"), "{error}");
    // It joins again by itself.
    assert_eq!(numbers(&receive(&source, 1).await), [0]);
}

/// Far longer than anybody here waits: until then the group gives a dead consumer's partitions to nobody else.
const LONG_SESSION: Duration = Duration::from_secs(300);

fn billing(url: &str, topic: &str) -> KafkaSource {
    builder(url, topic).with_session_timeout(LONG_SESSION).with_instance("billing-1").build().unwrap()
}

/// Not a test of its own: the body of a consumer's process. It tells that it has received, and is killed.
#[tokio::test]
async fn a_consumer_that_is_killed() {
    let Some(told) = told() else { return };
    let [url, topic, received] = told.split('\n').collect::<Vec<_>>().try_into().unwrap();
    let source = billing(url, topic);
    receive(&source, 1).await;
    std::fs::write(received, "").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_back_under_its_name_need_not_wait_for_its_own_end() {
    let url = shared::url(Kind::Kafka);
    let topic = Cluster::at(&url).topic_with(3, 3, &GOOD).await;
    send(&url, &orders(10, &topic)).await;
    let folder = tempfile::tempdir().unwrap();
    let received = folder.path().join("received");
    let told = format!("{url}\n{topic}\n{}", received.display());
    let dead = Process::start("a_consumer_that_is_killed", &told);
    soon(async {
        while !received.exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    dead.kill();
    let parcels = receive(&billing(&url, &topic), 10).await;
    assert_eq!(numbers(&parcels).into_iter().collect::<BTreeSet<_>>(), (0..10).collect());
}

#[tokio::test]
async fn two_under_one_name_are_told() {
    let mock = filled(1, 1).await;
    let source = builder(&mock.bootstrap_servers(), TOPIC).with_instance("billing-1").build().unwrap();
    let parcels = receive(&source, 1).await;
    mock.request_errors(Api::Heartbeat, &[Respond::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID]);
    let error = soon(source.receive(1)).await.unwrap_err().to_string();
    assert!(
        error.contains("another process reads as billing-1: give each its own `with_instance`"),
        "{error}"
    );
    assert!(matches!(answer(&source, &parcels, Answer::Done).await[0], Err(SourceError::Stale { .. })));
}

#[test]
fn settings_that_make_no_sense_are_refused_in_words() {
    let new = || KafkaSource::builder("kafka://a:9092,b:9092", "orders");
    let refused = |builder: KafkaSourceBuilder| builder.build().unwrap_err().to_string();
    let told = [
        refused(KafkaSource::builder("http://a:9092", "orders")),
        refused(KafkaSource::builder("kafka://ann:s3cret@a:9092", "orders")),
        refused(KafkaSource::builder("kafka://a:9092", "a b")),
        refused(new().with_group("")),
        refused(new().with_instance("")),
        refused(new().with_instance("billing 1")),
        refused(new().with_prefetch(0)),
        refused(new().with_session_timeout(Duration::ZERO)),
        refused(new().with_session_timeout(Duration::from_millis(500))),
        refused(new().with_connect_timeout(Duration::MAX)),
        refused(new().with_root_certificates("/nobody/has/this.pem")),
        refused(new().with_property("enable.auto.commit", "true")),
        refused(new().with_property("auto.offset.reset", "latest")),
        refused(new().with_property("isolation.level", "read_uncommitted")),
        refused(new().with_property("group.id", "other")),
        refused(new().with_property("group.instance.id", "other")),
        refused(new().with_property("max.poll.interval.ms", "many")),
        refused(new().with_property("nobody.knows", "this")),
    ];
    assert!(!told.join("\n").contains("s3cret"), "{told:#?}");
    insta::assert_snapshot!("source_settings", told.join("\n"));
    for (name, value) in [("enable.auto.commit", "false"), ("isolation.level", "read_committed")] {
        new().with_property(name, value).build().unwrap();
    }
    KafkaSource::connect("kafka://a:9092", "orders").unwrap();
}
