//! RabbitMQ fixture of the source suite.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use crate::{
    rabbit::{Rabbit, durable, table, text, unique},
    support::send,
};
use async_trait::async_trait;
use lapin::{BasicProperties, options::BasicPublishOptions, types::FieldTable};
use postrider_core::{Outgoing, Source};
use postrider_testkit::{
    Kind,
    broker::RabbitMq,
    proxy::FaultProxy,
    shared,
    source::{SourceFeatures, SourceFixture},
};
use postrider_transports::rabbitmq::{RabbitMqSource, RabbitMqTransport};
use std::sync::Arc;
use tokio::sync::Mutex;

pub(crate) struct RabbitSourceFixture {
    url: String,
    is_quorum: bool,
    /// The test's own broker, which may be killed.
    own: Option<Mutex<RabbitMq>>,
}

impl RabbitSourceFixture {
    /// Quorum queues on the shared server.
    pub(crate) fn quorum() -> Self {
        Self { url: shared::url(Kind::RabbitMq), is_quorum: true, own: None }
    }

    /// Classic queues on the shared server.
    pub(crate) fn classic() -> Self {
        Self { is_quorum: false, ..Self::quorum() }
    }

    /// Quorum or classic queues on the test's own server.
    pub(crate) async fn own(is_quorum: bool) -> Self {
        let broker = RabbitMq::start().await;
        Self { url: broker.url().to_owned(), is_quorum, own: Some(Mutex::new(broker)) }
    }

    pub(crate) fn source_at(&self, url: &str, queue: &str) -> RabbitMqSource {
        RabbitMqSource::builder(url, queue).with_quorum(self.is_quorum).build().unwrap()
    }
}

/// The arguments of a quorum queue.
pub(crate) fn quorum() -> FieldTable {
    table([("x-queue-type", text("quorum"))])
}

#[async_trait]
impl SourceFixture for RabbitSourceFixture {
    fn features(&self) -> SourceFeatures {
        SourceFeatures {
            keeps_order: false,
            shares: true,
            carries_id: true,
            survives_restarts: self.own.is_some(),
        }
    }

    async fn address(&self) -> String {
        let queue = unique("orders");
        let arguments = if self.is_quorum { quorum() } else { FieldTable::default() };
        Rabbit::at(&self.url).await.declare(&queue, durable(), arguments).await;
        if let Some(broker) = &self.own {
            // A broker writes definitions to disk a moment after it has confirmed them. A graceful stop writes them.
            broker.lock().await.restart().await;
        }
        queue
    }

    async fn send(&self, address: &str, batch: Vec<Outgoing>) {
        assert!(batch.iter().all(|outgoing| outgoing.destination == address), "wrong destination");
        send(&RabbitMqTransport::new(self.url.as_str()).unwrap(), batch).await;
    }

    async fn send_bare(&self, address: &str, id: Option<&str>, body: &str) {
        let properties = id.map_or_else(BasicProperties::default, |id| {
            BasicProperties::default().with_message_id(id.into())
        });
        let channel = Rabbit::at(&self.url).await.confirming().await;
        let options = BasicPublishOptions::default();
        let sent =
            channel.basic_publish("".into(), address.into(), options, body.as_bytes(), properties).await;
        sent.unwrap().await.unwrap();
    }

    async fn source(&self, address: &str) -> Arc<dyn Source> {
        Arc::new(self.source_at(&self.url, address))
    }

    async fn source_within(&self, address: &str, max_bytes: usize) -> Option<Arc<dyn Source>> {
        Some(Arc::new(
            RabbitMqSource::builder(self.url.as_str(), address)
                .with_quorum(self.is_quorum)
                .with_max_bytes_in_flight(max_bytes)
                .build()
                .unwrap(),
        ))
    }

    async fn nobody_there(&self) -> Option<Arc<dyn Source>> {
        Some(Arc::new(self.source_at("amqp://guest:guest@127.0.0.1:1/%2f", "orders")))
    }

    async fn through_proxy(&self, address: &str) -> Option<(FaultProxy, Arc<dyn Source>)> {
        let (proxy, url) = FaultProxy::before_url(&self.url).await;
        Some((proxy, Arc::new(self.source_at(&url, address))))
    }

    async fn kill_and_restart(&self) {
        let mut broker = self.own.as_ref().expect("the shared server must not be killed").lock().await;
        broker.kill();
        broker.restart().await;
    }
}
