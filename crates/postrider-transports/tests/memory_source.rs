//! The memory source passes the suite.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use postrider_core::{Incoming, Outgoing, Source};
use postrider_testkit::{
    proxy::FaultProxy,
    source::{SourceFeatures, SourceFixture},
};
use postrider_transports::memory::MemoryQueue;
use std::sync::Arc;

struct MemoryFixture(MemoryQueue);

async fn fixture() -> MemoryFixture {
    MemoryFixture(MemoryQueue::new("orders"))
}

#[async_trait]
impl SourceFixture for MemoryFixture {
    fn features(&self) -> SourceFeatures {
        SourceFeatures { keeps_order: true, shares: true, carries_id: true, survives_restarts: false }
    }

    async fn address(&self) -> String {
        self.0.name().to_owned()
    }

    async fn send(&self, _: &str, batch: Vec<Outgoing>) {
        batch.into_iter().for_each(|outgoing| self.0.put(outgoing));
    }

    async fn send_bare(&self, address: &str, id: Option<&str>, body: &str) {
        let mut incoming = Incoming::new(address, body.to_owned());
        incoming.id = id.map(str::to_owned);
        self.0.put(incoming);
    }

    async fn source(&self, _: &str) -> Arc<dyn Source> {
        Arc::new(self.0.source())
    }

    async fn nobody_there(&self) -> Option<Arc<dyn Source>> {
        None
    }

    async fn through_proxy(&self, _: &str) -> Option<(FaultProxy, Arc<dyn Source>)> {
        None
    }

    async fn kill_and_restart(&self) {
        unreachable!("it dies with the process");
    }
}

postrider_testkit::source_suite!(fixture);
