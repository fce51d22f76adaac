//! The memory transport passes the suite.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use postrider_core::{Capacity, PublishError, Transport};
use postrider_testkit::{
    proxy::FaultProxy,
    transport::{Received, TransportFeatures, TransportFixture},
};
use postrider_transports::memory::MemoryTransport;
use std::sync::Arc;

const MOST_BYTES: usize = 10_000;

struct MemoryFixture(MemoryTransport);

async fn fixture() -> MemoryFixture {
    let transport = MemoryTransport::with_capacity(Capacity::of(100).with_message_bytes(MOST_BYTES));
    transport
        .fail_when(|outgoing| (outgoing.destination == "missing").then(|| PublishError::retry("not there")));
    MemoryFixture(transport)
}

#[async_trait]
impl TransportFixture for MemoryFixture {
    fn features(&self) -> TransportFeatures {
        TransportFeatures {
            knows_destinations: true,
            keeps_order: true,
            survives_restarts: false,
            too_large: Some(MOST_BYTES),
            carries_key: true,
        }
    }

    async fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.0.clone())
    }

    async fn nobody_there(&self) -> Arc<dyn Transport> {
        let nowhere = MemoryTransport::new();
        nowhere.fail_when(|_| Some(PublishError::unavailable("nobody is there")));
        Arc::new(nowhere)
    }

    async fn through_proxy(&self) -> Option<(FaultProxy, Arc<dyn Transport>)> {
        None
    }

    async fn destination(&self) -> String {
        "orders".to_owned()
    }

    fn missing_destination(&self) -> String {
        "missing".to_owned()
    }

    async fn received(&self, destination: &str, _: usize) -> Vec<Received> {
        let published = self.0.published().into_iter().filter(|outgoing| outgoing.destination == destination);
        published
            .map(|outgoing| Received {
                id: Some(outgoing.id.to_string()),
                key: outgoing.key.map(|key| key.to_string()),
                content_type: Some(outgoing.content_type.into()),
                body: outgoing.body,
                attributes: outgoing
                    .attributes
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value.into()))
                    .collect(),
                headers: outgoing.headers.into_iter().collect(),
            })
            .collect()
    }

    async fn kill_and_restart(&self) {
        unreachable!("it dies with the process");
    }
}

/// The guide for transports names the suite in the line that runs it here.
#[test]
fn own_transport_guide_runs_the_suite_as_this_file_does() {
    let guide = include_str!("../../../docs/guides/own-transport.md");
    let mut suites = include_str!("memory.rs").lines().filter(|line| line.starts_with("postrider_testkit::"));
    assert!(suites.all(|line| guide.contains(line)));
}

postrider_testkit::transport_suite!(fixture);
