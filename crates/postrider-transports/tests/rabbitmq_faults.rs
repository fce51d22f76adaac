//! RabbitMQ under faults: killed again and again, over connections that are cut.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/rabbit.rs"]
mod rabbit;
#[path = "../../postrider-stores/tests/support/sqlite.rs"]
#[allow(dead_code, reason = "the suite of stores needs more of it")]
mod sqlite;

use async_trait::async_trait;
use postrider_core::Transport;
use postrider_testkit::{
    broker::RabbitMq,
    relay_faults::{FaultFixture, cycles, pass_over},
    transport::Received,
};
use postrider_transports::rabbitmq::RabbitMqOptions;
use rabbit::Rabbit;
use sqlite::SqliteFixture;
use std::{sync::Arc, time::Duration};
use tokio::sync::Mutex;

struct Killed {
    broker: Mutex<RabbitMq>,
    url: String,
    queue: String,
}

impl Killed {
    async fn new() -> Self {
        let mut broker = RabbitMq::start().await;
        let url = broker.url().to_owned();
        let queue = Rabbit::at(&url).await.queue().await;
        // Definitions are on the disk a moment after the broker has said so. One that was stopped has written them.
        broker.restart().await;
        Self { broker: Mutex::new(broker), url, queue }
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
    let outcome = pass_over(SqliteFixture::new().await, Killed::new().await, cycles()).await;
    assert!(outcome.failures > 0 && outcome.rolled_back > 0, "it was too quiet: {outcome:?}");
}
