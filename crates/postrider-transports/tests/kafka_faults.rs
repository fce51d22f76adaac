//! Kafka under faults: a broker that is killed repeatedly, behind connections that are cut.

#![cfg(feature = "kafka")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/kafka.rs"]
mod server;
#[path = "../../postrider-stores/tests/support/sqlite.rs"]
#[allow(dead_code, reason = "the suite of stores needs more of it")]
mod sqlite;

use async_trait::async_trait;
use postrider_core::{ClientOptions, Transport};
use postrider_testkit::{
    broker::Kafka,
    proxy::FaultProxy,
    relay_faults::{FaultFixture, cycles, pass_over},
    transport::Received,
};
use postrider_transports::kafka::KafkaTransport;
use server::Cluster;
use sqlite::SqliteFixture;
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};
use std::{sync::Arc, time::Duration};
use tokio::sync::Mutex;

struct Killed {
    broker: Mutex<Kafka>,
    url: String,
    /// The address that the broker advertises.
    proxy: u16,
    topic: String,
}

impl Killed {
    async fn new() -> Self {
        let (broker, proxy) = server::behind_a_proxy().await;
        let url = broker.url().to_owned();
        let_headers_be_found(&broker).await;
        let topic = {
            let _passing = FaultProxy::on(proxy, &format!("127.0.0.1:{}", broker.port())).await;
            Cluster::at(&url).topic_with(3, 1, &[]).await
        };
        Self { broker: Mutex::new(broker), url, proxy, topic }
    }
}

/// Tansu scans the headers of all records for those of one. With an index, reading ten thousand takes seconds.
async fn let_headers_be_found(broker: &Kafka) {
    let file = SqliteConnectOptions::new().filename(broker.folder().join("data/tansu.db"));
    let mut tansu = file.busy_timeout(Duration::from_secs(60)).connect().await.unwrap();
    let index = "create index header_of_record on header (topition, offset_id)";
    sqlx::query(index).execute(&mut tansu).await.unwrap();
    tansu.close().await.unwrap();
}

#[async_trait]
impl FaultFixture for Killed {
    fn server(&self) -> String {
        self.url.replace("kafka://", "")
    }

    async fn proxy(&self) -> FaultProxy {
        FaultProxy::on(self.proxy, &self.server()).await
    }

    fn destination(&self) -> String {
        self.topic.clone()
    }

    async fn transport(&self, proxy: &str) -> Arc<dyn Transport> {
        // Below the relay's own timeout, which is a second here.
        let client = ClientOptions::new(format!("kafka://{proxy}"))
            .with_connect_timeout(Duration::from_millis(800))
            .with_request_timeout(Duration::from_millis(800));
        Arc::new(KafkaTransport::connect(client).unwrap())
    }

    async fn kill(&self) {
        self.broker.lock().await.kill();
    }

    async fn restart(&self) {
        self.broker.lock().await.restart().await;
    }

    async fn arrived(&self) -> Vec<Received> {
        Cluster::at(&self.url).received(&self.topic, 0).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_cuts_lose_nothing() {
    let outcome = pass_over(SqliteFixture::new().await, Killed::new().await, cycles()).await;
    assert!(outcome.failures > 0 && outcome.rolled_back > 0, "too few faults were injected: {outcome:?}");
}
