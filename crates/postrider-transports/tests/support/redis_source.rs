//! Redis fixture of the source suite: on a shared server, or on one that is killed.

#![allow(
    dead_code,
    clippy::unused_async,
    reason = "each test binary uses a part of it, and suites await their fixtures"
)]

use crate::{
    server::{connection, new_stream, run},
    support::{self, PATIENCE, publish, unused_port},
};
use async_trait::async_trait;
use postrider_core::{ClientOptions, Outgoing, Source};
use postrider_testkit::{
    Kind,
    broker::Redis,
    proxy::FaultProxy,
    shared,
    source::{SourceFeatures, SourceFixture},
};
use postrider_transports::redis::{RedisSource, RedisSourceBuilder, RedisTransport};
use std::{sync::Arc, time::Duration};
use tokio::sync::Mutex;

/// Short, so that entries of a dead consumer are redelivered soon.
pub(crate) const ACK_DEADLINE: Duration = Duration::from_secs(2);

pub(crate) struct RedisSourceFixture {
    pub(crate) url: String,
    own: Option<Mutex<Redis>>,
}

pub(crate) async fn shared_server() -> RedisSourceFixture {
    RedisSourceFixture { url: shared::url(Kind::Redis), own: None }
}

pub(crate) async fn own_server() -> RedisSourceFixture {
    let own = Redis::start().await;
    RedisSourceFixture { url: own.url().to_owned(), own: Some(Mutex::new(own)) }
}

pub(crate) fn builder(url: &str, stream: &str) -> RedisSourceBuilder {
    // Shorter than the timeout of the suite, so that a silent connection is closed in time.
    let client = ClientOptions::new(url)
        .with_request_timeout(Duration::from_secs(5))
        .with_connect_timeout(Duration::from_secs(20));
    RedisSource::builder(client, stream).with_group("billing").with_ack_deadline(ACK_DEADLINE)
}

/// A stream with its group.
pub(crate) async fn stream(url: &str) -> String {
    let stream = new_stream();
    run::<()>(url, &format!("XGROUP CREATE {stream} billing 0 MKSTREAM")).await;
    stream
}

pub(crate) async fn send(url: &str, batch: &[Outgoing]) {
    let transport = RedisTransport::connect(support::client(url, PATIENCE)).unwrap();
    for result in publish(&transport, batch).await {
        result.unwrap();
    }
}

#[async_trait]
impl SourceFixture for RedisSourceFixture {
    fn features(&self) -> SourceFeatures {
        SourceFeatures {
            keeps_order: false,
            shares: true,
            carries_id: true,
            survives_restarts: self.own.is_some(),
        }
    }

    async fn address(&self) -> String {
        stream(&self.url).await
    }

    async fn send(&self, _: &str, batch: Vec<Outgoing>) {
        send(&self.url, &batch).await;
    }

    async fn send_bare(&self, address: &str, id: Option<&str>, body: &str) {
        let mut add = redis::cmd("XADD");
        add.arg(address).arg("*").arg("body").arg(body);
        if let Some(id) = id {
            add.arg("id").arg(id);
        }
        add.query_async::<String>(&mut connection(&self.url).await).await.unwrap();
    }

    async fn source(&self, address: &str) -> Arc<dyn Source> {
        Arc::new(builder(&self.url, address).build().unwrap())
    }

    async fn source_within(&self, address: &str, max_bytes: usize) -> Option<Arc<dyn Source>> {
        Some(Arc::new(builder(&self.url, address).with_max_bytes_in_flight(max_bytes).build().unwrap()))
    }

    async fn nobody_there(&self) -> Option<Arc<dyn Source>> {
        let url = format!("redis://127.0.0.1:{}", unused_port());
        Some(Arc::new(builder(&url, "orders").build().unwrap()))
    }

    async fn through_proxy(&self, address: &str) -> Option<(FaultProxy, Arc<dyn Source>)> {
        let (proxy, url) = FaultProxy::before_url(&self.url).await;
        Some((proxy, Arc::new(builder(&url, address).build().unwrap())))
    }

    async fn kill_and_restart(&self) {
        let mut own = self.own.as_ref().unwrap().lock().await;
        own.kill();
        own.restart().await;
    }
}
