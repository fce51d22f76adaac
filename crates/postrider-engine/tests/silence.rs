//! A store that does not answer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use postrider_core::{
    ClaimRequest, Claimed, Error, Lease, Message, OutboxExt, Paused, PruneRequest, Pruned, Settle, Store,
};
use postrider_engine::{Context, Failure, Queue, Worker};
use postrider_stores::memory::MemoryStore;
use std::{future::pending, sync::Arc, time::Duration};
use tokio::sync::Notify;

/// Renewals are never answered.
#[derive(Debug)]
struct Silent(MemoryStore);

#[async_trait]
impl Store for Silent {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        self.0.claim(request).await
    }

    async fn renew(&self, _: &[Lease], _: Duration) -> Result<Vec<Lease>, Error> {
        pending().await
    }

    async fn settle(&self, settlements: &[Settle]) -> Result<Vec<Lease>, Error> {
        self.0.settle(settlements).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, Error> {
        self.0.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<Paused>, Error> {
        self.0.paused().await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.0.ping().await
    }
}

/// The process goes by its own clock: whoever holds a message whose lease may have lapsed is told.
#[tokio::test(start_paused = true)]
async fn a_handler_is_told_when_its_lease_may_have_lapsed_though_the_store_is_silent() {
    let store = MemoryStore::new();
    let mut tx = store.begin();
    store.stage(&mut tx, Message::builder("orders").json(&17)).await.unwrap();
    tx.commit();
    let told = Arc::new(Notify::new());
    let telling = Arc::clone(&told);
    let handler = move |_: u64, context: Context| {
        let telling = Arc::clone(&telling);
        async move {
            context.cancellation().cancelled().await;
            telling.notify_one();
            Ok::<(), Failure>(())
        }
    };
    let queue = Queue::new("orders").on_json(handler).timeout(Duration::from_secs(3600));
    let worker = Worker::builder_on(Arc::new(Silent(store)), None).queue(queue).build().unwrap();
    let running = worker.start();
    tokio::time::timeout(Duration::from_secs(600), told.notified()).await.expect("nobody told it");
    running.abort().await;
}
