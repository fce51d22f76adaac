//! RabbitMQ under faults: killed again and again, over connections that are cut.

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
use postrider_core::{Capacity, Finding, Outgoing, PublishError, Receipt, Transport};
use postrider_testkit::{
    broker::RabbitMq,
    relay_faults::{FaultFixture, cycles, pass_over},
    transport::Received,
};
use postrider_transports::rabbitmq::RabbitMqOptions;
use rabbit::Rabbit;
use sqlite::SqliteFixture;
use std::{sync::Arc, time::Duration};
use tokio::{sync::Mutex, time::timeout};

struct Killed {
    broker: Mutex<RabbitMq>,
    url: String,
    queue: String,
    is_hasty: bool,
}

impl Killed {
    async fn new(is_hasty: bool) -> Self {
        let mut broker = RabbitMq::start().await;
        let url = broker.url().to_owned();
        let queue = Rabbit::at(&url).await.queue().await;
        // Definitions are on the disk a moment after the broker has said so. One that was stopped has written them.
        broker.restart().await;
        Self { broker: Mutex::new(broker), url, queue, is_hasty }
    }
}

#[async_trait]
impl FaultFixture for Killed {
    fn server(&self) -> String {
        let (_, server) = self.url.split_once('@').unwrap();
        server.split('/').next().unwrap().to_owned()
    }

    fn destination(&self) -> String {
        self.queue.clone()
    }

    async fn transport(&self, proxy: &str) -> Arc<dyn Transport> {
        let through = self.url.replace(&self.server(), proxy);
        if self.is_hasty {
            return Arc::new(Hasty { url: through, line: Mutex::default() });
        }
        Arc::new(RabbitMqOptions::new(through).with_connect_timeout(Duration::from_secs(1)).build().unwrap())
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
    let outcome = pass_over(SqliteFixture::new().await, Killed::new(false).await, cycles()).await;
    assert!(outcome.failures > 0 && outcome.rolled_back > 0, "it was too quiet: {outcome:?}");
}

/// Calls a message accepted as soon as it is sent.
struct Hasty {
    url: String,
    line: Mutex<Option<(Connection, Channel)>>,
}

impl Hasty {
    async fn channel(&self) -> Option<Channel> {
        let mut line = self.line.lock().await;
        if let Some((_, channel)) = line.as_ref().filter(|(_, channel)| channel.status().connected()) {
            return Some(channel.clone());
        }
        let connecting = Connection::connect(&self.url, ConnectionProperties::default());
        let connection = timeout(Duration::from_secs(1), connecting).await.ok()?.ok()?;
        let channel = timeout(Duration::from_secs(1), connection.create_channel()).await.ok()?.ok()?;
        *line = Some((connection, channel.clone()));
        Some(channel)
    }

    async fn publish_one(&self, outgoing: &Outgoing) -> Result<Receipt, PublishError> {
        let channel = self.channel().await.ok_or_else(|| PublishError::down("no connection"))?;
        let id = ShortString::from(outgoing.id.to_string());
        let properties = BasicProperties::default().with_delivery_mode(2).with_message_id(id);
        let (key, options) = (outgoing.destination.as_str().into(), BasicPublishOptions::default());
        let sent = channel.basic_publish("".into(), key, options, &outgoing.body, properties).await;
        sent.map(|_| Receipt::new()).map_err(PublishError::unknown)
    }
}

impl std::fmt::Debug for Hasty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hasty").finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for Hasty {
    fn kind(&self) -> &'static str {
        "hasty"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(500)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let mut answers = Vec::new();
        for outgoing in batch {
            answers.push(self.publish_one(outgoing).await);
        }
        answers
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(Vec::new())
    }

    async fn close(&self) {}
}

/// The control: the matrix catches a transport that does not wait for confirms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hasty_transport_is_caught() {
    let (outbox, killed) = (SqliteFixture::new().await, Killed::new(true).await);
    let caught = tokio::spawn(pass_over(outbox, killed, 1)).await.unwrap_err().into_panic();
    let told = caught.downcast_ref::<String>().expect("it panics with words");
    assert!(told.contains("were committed and never arrived"), "{told}");
}
