//! Kafka sources for suites: on a shared server, or on one that is killed.

#![allow(
    dead_code,
    clippy::unused_async,
    reason = "each test binary uses a part of it, and suites wait for their fixtures"
)]

use crate::{
    server::{self, Cluster, GOOD},
    support::{PATIENCE, client, publish, unused_port},
};
use async_trait::async_trait;
use postrider_core::{ClientOptions, Outgoing, Source, Transport};
use postrider_testkit::{
    Kind,
    broker::Kafka,
    proxy::FaultProxy,
    shared,
    source::{SourceFeatures, SourceFixture},
};
use postrider_transports::kafka::{KafkaSource, KafkaSourceBuilder, KafkaTransport};
use rdkafka::{
    mocking::MockCluster,
    producer::{FutureProducer, FutureRecord},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::{Mutex, OnceCell};

pub(crate) struct KafkaSourceFixture {
    url: String,
    own: Option<Mutex<Kafka>>,
    /// librdkafka's own cluster, with this topic.
    mock: Option<&'static str>,
    /// A server that advertises the address of a proxy, and that proxy's port. Tests that need a proxy use it instead of the other, and
    /// all connections go through that proxy.
    behind: OnceCell<(Kafka, u16)>,
}

pub(crate) async fn shared_server() -> KafkaSourceFixture {
    KafkaSourceFixture { url: shared::url(Kind::Kafka), own: None, mock: None, behind: OnceCell::new() }
}

pub(crate) async fn own_server() -> KafkaSourceFixture {
    let own = Kafka::start().await;
    KafkaSourceFixture {
        url: own.url().to_owned(),
        own: Some(Mutex::new(own)),
        mock: None,
        behind: OnceCell::new(),
    }
}

/// librdkafka's mock cluster of three brokers. It lives as long as the process, because its users may outlive a test.
pub(crate) async fn mock_cluster() -> KafkaSourceFixture {
    let mock = MockCluster::new(3).unwrap();
    mock.create_topic("orders", 3, 3).unwrap();
    let url = mock.bootstrap_servers();
    std::mem::forget(mock);
    KafkaSourceFixture { url, own: None, mock: Some("orders"), behind: OnceCell::new() }
}

/// A consumer of the group that has the topic's name.
pub(crate) fn builder(url: &str, topic: &str) -> KafkaSourceBuilder {
    builder_within(url, topic, Duration::from_secs(10))
}

pub(crate) fn builder_within(url: &str, topic: &str, connect_timeout: Duration) -> KafkaSourceBuilder {
    KafkaSource::builder(ClientOptions::new(url).with_connect_timeout(connect_timeout), topic)
        .with_group(topic)
        .with_session_timeout(Duration::from_secs(6))
        .with_property("fetch.wait.max.ms", "100")
}

pub(crate) async fn send(url: &str, batch: &[Outgoing]) {
    let transport = KafkaTransport::connect(client(url, PATIENCE / 2)).unwrap();
    for answer in publish(&transport, batch).await {
        answer.unwrap();
    }
}

impl KafkaSourceFixture {
    fn url(&self) -> &str {
        self.behind.get().map_or(&self.url, |(behind, _)| behind.url())
    }
}

#[async_trait]
impl SourceFixture for KafkaSourceFixture {
    fn features(&self) -> SourceFeatures {
        SourceFeatures {
            keeps_order: true,
            shares: self.mock.is_some(),
            carries_id: false,
            survives_restarts: self.own.is_some(),
        }
    }

    async fn address(&self) -> String {
        match self.mock {
            Some(topic) => topic.to_owned(),
            None => Cluster::at(&self.url).topic_with(3, 3, &GOOD).await,
        }
    }

    async fn send(&self, _: &str, batch: Vec<Outgoing>) {
        if self.behind.get().is_none() {
            return send(&self.url, &batch).await;
        }
        // The proxy may drop traffic at this moment: retried until accepted, as the relay does.
        let url = self.url().to_owned();
        tokio::spawn(async move {
            let transport = KafkaTransport::connect(client(url, Duration::from_secs(3))).unwrap();
            for outgoing in batch {
                while transport.publish(std::slice::from_ref(&outgoing)).await[0].is_err() {
                    tokio::task::yield_now().await;
                }
            }
        });
    }

    async fn send_bare(&self, address: &str, _: Option<&str>, body: &str) {
        let mut config = rdkafka::ClientConfig::new();
        config.set("bootstrap.servers", self.url.trim_start_matches("kafka://"));
        let producer: FutureProducer = config.create().unwrap();
        let record = FutureRecord::<(), _>::to(address).payload(body);
        producer.send(record, PATIENCE).await.unwrap();
    }

    async fn source(&self, address: &str) -> Arc<dyn Source> {
        Arc::new(builder(self.url(), address).build().unwrap())
    }

    async fn source_within(&self, address: &str, max_bytes: usize) -> Option<Arc<dyn Source>> {
        // The mock cluster keeps the last 5 MiB of a partition only, and this many bytes slow the shared server down.
        self.own.as_ref()?;
        Some(Arc::new(builder(self.url(), address).with_max_bytes_in_flight(max_bytes).build().unwrap()))
    }

    async fn nobody_there(&self) -> Option<Arc<dyn Source>> {
        let url = format!("kafka://127.0.0.1:{}", unused_port());
        Some(Arc::new(builder(&url, "orders").build().unwrap()))
    }

    async fn through_proxy(&self, address: &str) -> Option<(FaultProxy, Arc<dyn Source>)> {
        // The mock cluster's brokers advertise their own addresses.
        if self.mock.is_some() {
            return None;
        }
        let (behind, port) = self.behind.get_or_init(server::behind_a_proxy).await;
        let proxy = FaultProxy::on(*port, &format!("127.0.0.1:{}", behind.port())).await;
        Cluster::at(behind.url()).create(address, 3, 3, &GOOD).await;
        let source = builder(behind.url(), address).build().unwrap();
        Some((proxy, Arc::new(source)))
    }

    async fn kill_and_restart(&self) {
        let mut own = self.own.as_ref().unwrap().lock().await;
        own.kill();
        own.restart().await;
    }
}
