//! Redis Streams under faults: the server is killed repeatedly, and connections are cut.

#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/redis.rs"]
mod server;
#[path = "../../postrider-stores/tests/support/sqlite.rs"]
#[allow(dead_code, reason = "the suite of stores needs more of it")]
mod sqlite;

use async_trait::async_trait;
use postrider_core::{ClientOptions, Transport};
use postrider_testkit::{
    broker::Redis,
    relay_faults::{FaultFixture, cycles, pass_over},
    transport::Received,
};
use postrider_transports::redis::RedisTransport;
use server::{entries, new_stream, undo};
use sqlite::SqliteFixture;
use std::{sync::Arc, time::Duration};
use tokio::sync::Mutex;

struct KillableBroker {
    broker: Mutex<Redis>,
    url: String,
    stream: String,
}

impl KillableBroker {
    async fn new() -> Self {
        let broker = Redis::start().await;
        let url = broker.url().to_owned();
        Self { broker: Mutex::new(broker), url, stream: new_stream() }
    }
}

#[async_trait]
impl FaultFixture for KillableBroker {
    fn server(&self) -> String {
        self.url.replace("redis://", "")
    }

    fn destination(&self) -> String {
        self.stream.clone()
    }

    async fn transport(&self, proxy: &str) -> Arc<dyn Transport> {
        let client =
            ClientOptions::new(format!("redis://{proxy}")).with_connect_timeout(Duration::from_secs(1));
        Arc::new(RedisTransport::connect(client).unwrap())
    }

    async fn kill(&self) {
        self.broker.lock().await.kill();
    }

    async fn restart(&self) {
        self.broker.lock().await.restart().await;
    }

    async fn arrived(&self) -> Vec<Received> {
        entries(&self.url, &self.stream).await.into_iter().map(undo).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_and_cuts_lose_nothing() {
    let outcome = pass_over(SqliteFixture::new().await, KillableBroker::new().await, cycles()).await;
    assert!(outcome.failures > 0 && outcome.rolled_back > 0, "too few faults: {outcome:?}");
}
