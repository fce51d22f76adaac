//! Kafka passes the suite, on a server that all tests share and on one that is killed.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka.rs"]
mod server;
mod support;

use async_trait::async_trait;
use postrider_core::{PublishError, Transport};
use postrider_testkit::{
    Kind,
    broker::Kafka,
    proxy::FaultProxy,
    shared,
    transport::{Received, TransportFeatures, TransportFixture},
};
use postrider_transports::kafka::{Compression, KafkaOptions, KafkaTransport, SaslMechanism};
use server::Cluster;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use support::{PATIENCE, order, orders, publish, unused_port};
use tokio::sync::{Mutex, OnceCell};

/// More than the client takes unless told otherwise.
const TOO_LARGE: usize = 1_000_001;

struct KafkaFixture {
    url: String,
    own: Option<Mutex<Kafka>>,
    /// A server that tells its clients to come to a proxy, and that proxy's port. Whoever wants one has it instead of the other.
    behind: OnceCell<(Kafka, u16)>,
}

impl KafkaFixture {
    fn url(&self) -> &str {
        self.behind.get().map_or(&self.url, |(behind, _)| behind.url())
    }
}

async fn shared_server() -> KafkaFixture {
    KafkaFixture { url: shared::url(Kind::Kafka), own: None, behind: OnceCell::new() }
}

async fn own_server() -> KafkaFixture {
    let own = Kafka::start().await;
    KafkaFixture { url: own.url().to_owned(), own: Some(Mutex::new(own)), behind: OnceCell::new() }
}

mod on_a_shared_server {
    postrider_testkit::transport_suite!(super::shared_server);
}

mod on_a_server_that_crashes {
    postrider_testkit::transport_suite!(super::own_server);
}

fn options(url: &str) -> KafkaOptions {
    KafkaOptions::new(url).with_ack_timeout(PATIENCE / 2).with_connect_timeout(PATIENCE / 2)
}

fn transport(url: &str) -> KafkaTransport {
    options(url).build().unwrap()
}

#[async_trait]
impl TransportFixture for KafkaFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: true,
            keeps_order: true,
            survives_restarts: self.own.is_some(),
            too_large: Some(TOO_LARGE),
            carries_key: true,
        }
    }

    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(transport(self.url()))
    }

    async fn nobody_there(&self) -> Arc<dyn Transport> {
        Arc::new(transport(&format!("kafka://127.0.0.1:{}", unused_port())))
    }

    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)> {
        let (behind, port) = self.behind.get_or_init(server::behind_a_proxy).await;
        let proxy = FaultProxy::on(*port, &format!("127.0.0.1:{}", behind.port())).await;
        let transport = transport(&format!("kafka://{}", proxy.address()));
        Some((proxy, Arc::new(transport)))
    }

    async fn destination(&self) -> String {
        Cluster::at(self.url()).topic().await
    }

    fn missing_destination(&self) -> String {
        "nobody-made-this".to_owned()
    }

    async fn received(&self, destination: &str, count: usize) -> Vec<Received> {
        Cluster::at(self.url()).received(destination, count).await
    }

    async fn kill_and_restart(&self) {
        let mut own = self.own.as_ref().unwrap().lock().await;
        own.kill();
        own.restart().await;
    }
}
