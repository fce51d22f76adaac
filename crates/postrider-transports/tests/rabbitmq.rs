//! RabbitMQ passes the suite, and what is special about it.

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
    transport::{self, Received, TransportFeatures, TransportFixture, trouble},
};
use postrider_transports::rabbitmq::{RabbitMqOptions, RabbitMqTransport};
use rabbit::{Rabbit, unique};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use tokio::sync::Mutex as AsyncMutex;

const MOST_BYTES: usize = 1 << 20;

/// What does not exist.
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
    /// One that may be killed.
    own: Option<AsyncMutex<RabbitMq>>,
}

impl RabbitFixture {
    fn shared(missing: Missing) -> Self {
        let url = shared::url(Kind::RabbitMq);
        let missing = match missing {
            Missing::Queue => unique("nobody"),
            Missing::Binding => "amq.direct/nobody".to_owned(),
            Missing::Exchange => format!("{}/key", unique("nowhere")),
        };
        Self { url, missing, received: Mutex::default(), own: None }
    }

    async fn own() -> Self {
        let broker = RabbitMq::start().await;
        let url = broker.url().to_owned();
        let own = Some(AsyncMutex::new(broker));
        Self { url, missing: unique("nobody"), received: Mutex::default(), own }
    }
}

fn transport_to(url: &str) -> Arc<dyn Transport> {
    Arc::new(RabbitMqOptions::new(url).with_message_bytes(MOST_BYTES).build().unwrap())
}

#[async_trait]
impl TransportFixture for RabbitFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: true,
            keeps_order: true,
            survives_restarts: self.own.is_some(),
            too_large: Some(MOST_BYTES + 1),
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
            // A broker writes definitions to its disk a moment after it has said that they are there. One that is stopped has.
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
        let mut broker = self.own.as_ref().expect("this one is not ours to kill").lock().await;
        broker.kill();
        broker.restart().await;
    }
}

mod a_missing_queue {
    use super::*;
    async fn fixture() -> RabbitFixture {
        RabbitFixture::shared(Missing::Queue)
    }
    postrider_testkit::transport_suite!(fixture);
}

mod a_missing_binding {
    use super::*;
    async fn fixture() -> RabbitFixture {
        RabbitFixture::shared(Missing::Binding)
    }
    postrider_testkit::transport_suite!(fixture);
}

/// The broker closes the channel on which that is noticed.
mod a_missing_exchange {
    use super::*;
    async fn fixture() -> RabbitFixture {
        RabbitFixture::shared(Missing::Exchange)
    }
    postrider_testkit::transport_suite!(fixture);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_survives_a_crash() {
    transport::run(RabbitFixture::own(), trouble::what_was_accepted_survives_a_crash).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_in_the_middle_loses_nothing_that_was_accepted() {
    transport::run(RabbitFixture::own(), trouble::a_crash_in_the_middle_loses_nothing_that_was_accepted)
        .await;
}
