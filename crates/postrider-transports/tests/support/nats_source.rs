//! NATS fixture of the source suite: streams with a durable consumer.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use crate::{
    server::{context, stream},
    support::{PATIENCE, send, unused_port},
};
use async_nats::{HeaderMap, jetstream::consumer::pull};
use async_trait::async_trait;
use postrider_core::{ClientOptions, Outgoing, Source};
use postrider_testkit::{
    Kind,
    broker::Nats,
    proxy::FaultProxy,
    shared,
    source::{SourceFeatures, SourceFixture},
};
use postrider_transports::nats::{NatsSource, NatsSourceBuilder, NatsTransport};
use std::{sync::Arc, time::Duration};
use tokio::sync::Mutex;

pub(crate) const DURABLE: &str = "billing";
/// Long enough for a slow machine to handle its messages, and short enough for a test to wait.
const ACK_WAIT: Duration = Duration::from_secs(5);

pub(crate) struct NatsSourceFixture {
    url: String,
    own: Option<Mutex<Nats>>,
}

impl NatsSourceFixture {
    /// On the shared server.
    pub(crate) fn shared() -> Self {
        Self { url: shared::url(Kind::Nats), own: None }
    }

    /// On the test's own server, which may be killed.
    pub(crate) async fn own() -> Self {
        let own = Nats::start().await;
        Self { url: own.url().to_owned(), own: Some(Mutex::new(own)) }
    }
}

/// The stream of a subject made by [`stream`].
pub(crate) fn stream_of(subject: &str) -> &str {
    subject.split('.').next().unwrap()
}

/// A good consumer configuration.
pub(crate) fn config() -> pull::Config {
    pull::Config {
        durable_name: Some(DURABLE.to_owned()),
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        ..pull::Config::default()
    }
}

/// A stream with a consumer, and its subject.
pub(crate) async fn address(url: &str, change: impl FnOnce(&mut pull::Config)) -> String {
    let (stream, subject) = stream(url, |_| ()).await;
    let mut config = config();
    change(&mut config);
    stream.create_consumer(config).await.unwrap();
    subject
}

pub(crate) fn builder(url: &str, subject: &str) -> NatsSourceBuilder {
    NatsSource::builder(ClientOptions::new(url).with_connect_timeout(PATIENCE), stream_of(subject), DURABLE)
}

/// Publishes all messages.
pub(crate) async fn put(url: &str, batch: Vec<Outgoing>) {
    let client = ClientOptions::new(url).with_connect_timeout(PATIENCE);
    send(&NatsTransport::connect(client).unwrap(), batch).await;
}

#[async_trait]
impl SourceFixture for NatsSourceFixture {
    fn features(&self) -> SourceFeatures {
        SourceFeatures {
            keeps_order: false,
            shares: true,
            carries_id: true,
            survives_restarts: self.own.is_some(),
        }
    }

    async fn address(&self) -> String {
        address(&self.url, |_| ()).await
    }

    async fn send(&self, address: &str, batch: Vec<Outgoing>) {
        assert!(batch.iter().all(|outgoing| outgoing.destination == address), "wrong destination");
        put(&self.url, batch).await;
    }

    async fn send_bare(&self, address: &str, id: Option<&str>, body: &str) {
        let mut headers = HeaderMap::new();
        if let Some(id) = id {
            headers.insert("Nats-Msg-Id", id);
        }
        let context = context(&self.url).await;
        let sent = context.publish_with_headers(address.to_owned(), headers, body.to_owned().into()).await;
        sent.unwrap().await.unwrap();
    }

    async fn source(&self, address: &str) -> Arc<dyn Source> {
        Arc::new(builder(&self.url, address).build().unwrap())
    }

    async fn source_within(&self, address: &str, max_bytes: usize) -> Option<Arc<dyn Source>> {
        Some(Arc::new(builder(&self.url, address).with_max_bytes_in_flight(max_bytes).build().unwrap()))
    }

    async fn nobody_there(&self) -> Option<Arc<dyn Source>> {
        let unreachable = format!("nats://127.0.0.1:{}", unused_port());
        Some(Arc::new(builder(&unreachable, "ORDERS.placed").build().unwrap()))
    }

    async fn through_proxy(&self, address: &str) -> Option<(FaultProxy, Arc<dyn Source>)> {
        let (proxy, url) = FaultProxy::before_url(&self.url).await;
        Some((proxy, Arc::new(builder(&url, address).build().unwrap())))
    }

    async fn kill_and_restart(&self) {
        let mut own = self.own.as_ref().expect("the shared server must not be killed").lock().await;
        own.kill();
        own.restart().await;
    }
}
