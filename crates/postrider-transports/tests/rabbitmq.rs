//! The transport suite on RabbitMQ.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;

use async_trait::async_trait;
use postrider_core::Transport;
use postrider_testkit::{
    Kind,
    broker::RabbitMq,
    proxy::FaultProxy,
    shared,
    transport::{self, Received, TransportFeatures, TransportFixture, outage},
};
use postrider_transports::rabbitmq::{RabbitMqOptions, RabbitMqTransport};
use rabbit::{Rabbit, unique};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::sync::Mutex as AsyncMutex;

const MAX_BYTES: usize = 1 << 20;

/// The part of the missing destination that does not exist.
#[derive(Debug, Clone, Copy)]
enum Missing {
    Queue,
    Binding,
    Exchange,
}

struct RabbitFixture {
    url: String,
    missing: String,
    received: Mutex<BTreeMap<String, Vec<Received>>>,
    /// The test's own broker, which may be killed.
    own: Option<AsyncMutex<RabbitMq>>,
}

impl RabbitFixture {
    fn shared(missing: Missing) -> Self {
        let url = shared::url(Kind::RabbitMq);
        let missing = match missing {
            Missing::Queue => unique("missing"),
            Missing::Binding => "amq.direct/unbound".to_owned(),
            Missing::Exchange => format!("{}/key", unique("missing")),
        };
        Self { url, missing, received: Mutex::default(), own: None }
    }

    async fn own() -> Self {
        let broker = RabbitMq::start().await;
        let url = broker.url().to_owned();
        let own = Some(AsyncMutex::new(broker));
        Self { url, missing: unique("missing"), received: Mutex::default(), own }
    }
}

fn transport_to(url: &str) -> Arc<dyn Transport> {
    Arc::new(RabbitMqOptions::new(url).with_message_bytes(MAX_BYTES).build().unwrap())
}

#[async_trait]
impl TransportFixture for RabbitFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: true,
            keeps_order: true,
            survives_restarts: self.own.is_some(),
            too_large: Some(MAX_BYTES + 1),
            carries_key: false,
        }
    }

    async fn transport(&self) -> Arc<dyn Transport> {
        transport_to(&self.url)
    }

    async fn nobody_there(&self) -> Arc<dyn Transport> {
        Arc::new(RabbitMqTransport::new("amqp://guest:guest@127.0.0.1:1/%2f").unwrap())
    }

    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)> {
        let (proxy, url) = FaultProxy::before_url(&self.url).await;
        Some((proxy, transport_to(&url)))
    }

    async fn destination(&self) -> String {
        let queue = Rabbit::at(&self.url).await.queue().await;
        if let Some(broker) = &self.own {
            // A broker writes definitions to disk a moment after it has confirmed them. A graceful stop writes them.
            broker.lock().await.restart().await;
        }
        queue
    }

    fn missing_destination(&self) -> String {
        self.missing.clone()
    }

    async fn received(&self, destination: &str, count: usize) -> Vec<Received> {
        let before = self.received.lock().unwrap().get(destination).map_or(0, Vec::len);
        let taken = Rabbit::at(&self.url).await.take_all(destination, count.saturating_sub(before)).await;
        let mut received = self.received.lock().unwrap();
        let all = received.entry(destination.to_owned()).or_default();
        all.extend(taken);
        all.clone()
    }

    async fn kill_and_restart(&self) {
        let mut broker = self.own.as_ref().expect("the shared server must not be killed").lock().await;
        broker.kill();
        broker.restart().await;
    }
}

mod missing_queue {
    use super::*;
    async fn fixture() -> RabbitFixture {
        RabbitFixture::shared(Missing::Queue)
    }
    postrider_testkit::transport_suite!(fixture);
}

mod missing_binding {
    use super::*;
    async fn fixture() -> RabbitFixture {
        RabbitFixture::shared(Missing::Binding)
    }
    postrider_testkit::transport_suite!(fixture);
}

/// The broker closes the channel.
mod missing_exchange {
    use super::*;
    async fn fixture() -> RabbitFixture {
        RabbitFixture::shared(Missing::Exchange)
    }
    postrider_testkit::transport_suite!(fixture);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_messages_survive_a_crash() {
    transport::run(RabbitFixture::own(), outage::accepted_messages_survive_a_crash).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crash_during_publish_loses_no_accepted_message() {
    transport::run(RabbitFixture::own(), outage::a_crash_during_publish_loses_no_accepted_message).await;
}
