//! RabbitMQ under faults: the broker is killed repeatedly, and connections are cut.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;
#[path = "../../postrider-stores/tests/support/sqlite.rs"]
#[allow(dead_code, reason = "the suite of stores needs more of it")]
mod sqlite;

use async_trait::async_trait;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, options::BasicPublishOptions,
    types::ShortString,
};
use postrider_core::{Capacity, ClientOptions, Finding, Outgoing, PublishError, Receipt, Transport};
use postrider_testkit::{
    broker::RabbitMq,
    relay_faults::{FaultFixture, cycles, pass_over},
    transport::Received,
};
use postrider_transports::rabbitmq::RabbitMqTransport;
use rabbit::Rabbit;
use sqlite::SqliteFixture;
use std::{sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::timeout};

struct KillableBroker {
    broker: Mutex<RabbitMq>,
    url: String,
    queue: String,
    is_unconfirmed: bool,
}

impl KillableBroker {
    async fn new(is_unconfirmed: bool) -> Self {
        let mut broker = RabbitMq::start().await;
        let url = broker.url().to_owned();
        let queue = Rabbit::at(&url).await.queue().await;
        // A broker writes definitions to disk a moment after it has confirmed them. A graceful stop writes them.
        broker.restart().await;
        Self { broker: Mutex::new(broker), url, queue, is_unconfirmed }
    }
}

#[async_trait]
impl FaultFixture for KillableBroker {
    fn server(&self) -> String {
        let (_, server) = self.url.split_once('@').unwrap();
        server.split('/').next().unwrap().to_owned()
    }

    fn destination(&self) -> String {
        self.queue.clone()
    }

    async fn transport(&self, proxy: &str) -> Arc<dyn Transport> {
        let through = self.url.replace(&self.server(), proxy);
        if self.is_unconfirmed {
            return Arc::new(UnconfirmedTransport { url: through, connection: Mutex::default() });
        }
        let client = ClientOptions::new(through)
            .with_connect_timeout(Duration::from_secs(1))
            .with_request_timeout(Duration::from_secs(1));
        Arc::new(RabbitMqTransport::new(client).unwrap())
    }

    async fn kill(&self) {
        self.broker.lock().await.kill();
    }

    async fn restart(&self) {
        self.broker.lock().await.restart().await;
    }

    async fn arrived(&self) -> Vec<Received> {
        Rabbit::at(&self.url).await.take_all(&self.queue, 0).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_cuts_lose_nothing() {
    let outcome = pass_over(SqliteFixture::new().await, KillableBroker::new(false).await, cycles()).await;
    assert!(outcome.failures > 0 && outcome.rolled_back > 0, "too few faults: {outcome:?}");
}

/// Reports a message as accepted as soon as it is sent.
struct UnconfirmedTransport {
    url: String,
    connection: Mutex<Option<(Connection, Channel)>>,
}

impl UnconfirmedTransport {
    async fn channel(&self) -> Option<Channel> {
        let mut current = self.connection.lock().await;
        if let Some((_, channel)) = current.as_ref().filter(|(_, channel)| channel.status().connected()) {
            return Some(channel.clone());
        }
        let connecting = Connection::connect(&self.url, ConnectionProperties::default());
        let connection = timeout(Duration::from_secs(1), connecting).await.ok()?.ok()?;
        let channel = timeout(Duration::from_secs(1), connection.create_channel()).await.ok()?.ok()?;
        *current = Some((connection, channel.clone()));
        Some(channel)
    }

    async fn publish_one(&self, outgoing: &Outgoing) -> Result<Receipt, PublishError> {
        let channel = self.channel().await.ok_or_else(|| PublishError::unavailable("no connection"))?;
        let id = ShortString::from(outgoing.id.to_string());
        let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(id);
        let (key, options) = (outgoing.destination.as_str().into(), BasicPublishOptions::default());
        let sent = channel.basic_publish("".into(), key, options, &outgoing.body, properties).await;
        sent.map(|_| Receipt::new()).map_err(PublishError::unknown)
    }
}

impl std::fmt::Debug for UnconfirmedTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UnconfirmedTransport").finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for UnconfirmedTransport {
    fn kind(&self) -> &'static str {
        "unconfirmed"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(500)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let mut results = Vec::new();
        for outgoing in batch {
            results.push(self.publish_one(outgoing).await);
        }
        results
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(Vec::new())
    }

    async fn close(&self) {}
}

/// Control: the fault test catches a transport that does not wait for confirms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transport_without_confirms_is_caught() {
    let (outbox, broker) = (SqliteFixture::new().await, KillableBroker::new(true).await);
    let caught = tokio::spawn(pass_over(outbox, broker, 1)).await.unwrap_err().into_panic();
    let panic = caught.downcast_ref::<String>().expect("the panic has a message");
    assert!(panic.contains("were committed and never arrived"), "{panic}");
}
