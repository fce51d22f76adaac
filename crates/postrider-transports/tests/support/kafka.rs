//! Topics for tests, created and read with the client library alone.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use postrider_testkit::{broker::Kafka, free_ports, transport::Received};
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{BorrowedMessage, Headers},
    metadata::MetadataPartition,
};
use std::{
    path::Path,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server that advertises the address of a proxy, and the port of that proxy, which is not started yet.
pub(crate) async fn behind_a_proxy() -> (Kafka, u16) {
    let port = free_ports(1).unwrap()[0];
    (Kafka::start_behind(port).await, port)
}

/// A cluster, by its URL.
#[derive(Debug, Clone)]
pub(crate) struct Cluster(ClientConfig);

impl Cluster {
    pub(crate) fn at(url: &str) -> Self {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", url.trim_start_matches("kafka://"));
        Self(config)
    }

    /// The same over TLS, with this CA certificate.
    pub(crate) fn trusting(mut self, certificate: &Path) -> Self {
        self.0.set("security.protocol", "ssl").set("ssl.ca.location", certificate.to_str().unwrap());
        self
    }

    pub(crate) async fn exists(&self, topic: &str) -> bool {
        let (config, topic) = (self.0.clone(), topic.to_owned());
        let asking = tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = config.create().unwrap();
            let metadata = consumer.fetch_metadata(Some(&topic), PATIENCE).unwrap();
            metadata.topics().iter().any(|about| about.name() == topic && about.error().is_none())
        });
        asking.await.unwrap()
    }

    /// A topic of one partition with unlimited retention.
    pub(crate) async fn topic(&self) -> String {
        self.topic_with(1, 3, &GOOD).await
    }

    pub(crate) async fn topic_with(
        &self,
        partitions: i32,
        replicas: i32,
        settings: &[(&str, &str)],
    ) -> String {
        let name = format!("t-{}", uuid::Uuid::now_v7().simple());
        self.create(&name, partitions, replicas, settings).await;
        name
    }

    pub(crate) async fn create(&self, name: &str, partitions: i32, replicas: i32, settings: &[(&str, &str)]) {
        let admin: AdminClient<DefaultClientContext> = self.0.create().unwrap();
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(replicas));
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        let options = AdminOptions::new().operation_timeout(Some(PATIENCE));
        let mut made = admin.create_topics([&topic], &options).await.unwrap();
        made.remove(0).unwrap_or_else(|(name, error)| panic!("{name}: {error}"));
        tokio::task::spawn_blocking(move || drop(admin));
    }

    /// All records of a topic, partition by partition.
    pub(crate) async fn records(&self, topic: &str) -> Vec<Record> {
        let (config, topic) = (self.0.clone(), topic.to_owned());
        tokio::task::spawn_blocking(move || read(config, &topic)).await.unwrap()
    }

    /// The same, once there are `count` records.
    pub(crate) async fn received(&self, topic: &str, count: usize) -> Vec<Received> {
        loop {
            let records = self.records(topic).await;
            if records.len() >= count {
                return records.into_iter().map(|record| record.received).collect();
            }
        }
    }
}

/// The settings of a topic without findings.
pub(crate) const GOOD: [(&str, &str); 4] = [
    ("min.insync.replicas", "2"),
    ("cleanup.policy", "delete"),
    ("retention.ms", "604800000"),
    ("unclean.leader.election.enable", "false"),
];

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) partition: i32,
    pub(crate) timestamp: u64,
    pub(crate) received: Received,
}

fn read(mut config: ClientConfig, topic: &str) -> Vec<Record> {
    config.set("group.id", "nobody").set("enable.auto.commit", "false").set("fetch.wait.max.ms", "50");
    let consumer: BaseConsumer = config.create().unwrap();
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let mut records = Vec::new();
    for partition in metadata.topics()[0].partitions().iter().map(MetadataPartition::id) {
        let (low, high) = consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap();
        if low >= high {
            continue;
        }
        let mut assigned = TopicPartitionList::new();
        assigned.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        consumer.assign(&assigned).unwrap();
        let mut last = Instant::now();
        loop {
            assert!(last.elapsed() < PATIENCE, "{topic} cannot be read to its end");
            // Errors are lost connections, which the client reopens by itself.
            let Some(Ok(message)) = consumer.poll(Duration::from_secs(1)) else { continue };
            last = Instant::now();
            records.push(Record {
                partition,
                timestamp: message.timestamp().to_millis().unwrap_or_default().cast_unsigned(),
                received: undo(&message),
            });
            if message.offset() + 1 >= high {
                break;
            }
        }
        consumer.unassign().unwrap();
    }
    records
}

fn undo(message: &BorrowedMessage<'_>) -> Received {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut received = Received {
        key: message.key().map(text),
        body: message.payload().expect("a value, empty or not").to_vec().into(),
        ..Received::default()
    };
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        let value = text(header.value.unwrap());
        let seen = match header.key.strip_prefix("ce_") {
            Some(attribute) => received.attributes.insert(attribute.to_owned(), value),
            None if header.key == "content-type" => received.content_type.replace(value),
            None => received.headers.insert(header.key.to_owned(), value),
        };
        assert_eq!(seen, None, "{} is there twice", header.key);
    }
    received
}
