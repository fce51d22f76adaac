//! Webhooks under faults: a receiver that is stopped repeatedly, behind connections that are cut.

#![cfg(feature = "http")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "http/receiver.rs"]
#[allow(dead_code, reason = "the tests of webhooks need more of it")]
mod receiver;
#[path = "../../postrider-stores/tests/support/sqlite.rs"]
#[allow(dead_code, reason = "the suite of stores needs more of it")]
mod sqlite;

use async_trait::async_trait;
use postrider_core::Transport;
use postrider_testkit::{
    relay_faults::{FaultFixture, cycles, pass_over},
    transport::Received,
};
use postrider_transports::http::{HttpOptions, HttpTransport};
use receiver::Receiver;
use sqlite::SqliteFixture;
use std::sync::Arc;

/// A receiver that drops all connections when it is killed, and keeps its requests, as if they were on disk.
struct Killed(Receiver);

#[async_trait]
impl FaultFixture for Killed {
    fn server(&self) -> String {
        self.0.address.to_string()
    }

    fn destination(&self) -> String {
        "orders".to_owned()
    }

    async fn transport(&self, proxy: &str) -> Arc<dyn Transport> {
        let options = HttpOptions::below(format!("http://{proxy}/hooks")).unwrap();
        Arc::new(HttpTransport::new(options.allow_http().allow_host("127.0.0.1")).unwrap())
    }

    async fn kill(&self) {
        self.0.stop().await;
    }

    async fn restart(&self) {
        self.0.restart().await;
    }

    async fn arrived(&self) -> Vec<Received> {
        let arrived = self.0.arrived("/hooks/orders", 0).await;
        let undo = |request: receiver::ReceivedRequest| Received {
            id: Some(request.header("ce-id").to_owned()),
            body: request.body,
            ..Received::default()
        };
        arrived.into_iter().map(undo).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_cuts_lose_nothing() {
    let receiver = Killed(Receiver::start().await);
    let outcome = pass_over(SqliteFixture::new().await, receiver, cycles()).await;
    assert!(outcome.failures > 0 && outcome.rolled_back > 0, "too few faults were injected: {outcome:?}");
}
