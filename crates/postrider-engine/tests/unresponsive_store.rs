//! A store that does not answer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use postrider_core::{
    ClaimRequest, ClaimedMessage, Error, Lease, LeaseSettlement, Message, OutboxExt, PauseRecord,
    PruneReport, PruneRequest, Store,
};
use postrider_engine::{Context, Failure, Queue, Worker};
use postrider_stores::memory::MemoryStore;
use std::{future::pending, sync::Arc, time::Duration};
use tokio::sync::Notify;

/// Renewals never return.
#[derive(Debug)]
struct UnresponsiveStore(MemoryStore);

#[async_trait]
impl Store for UnresponsiveStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        self.0.claim(request).await
    }

    async fn renew(&self, _: &[Lease], _: Duration) -> Result<Vec<Lease>, Error> {
        pending().await
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        self.0.settle(settlements).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        self.0.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.0.paused().await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.0.ping().await
    }
}

/// The process goes by its own clock: a handler whose lease may have expired is cancelled.
#[tokio::test(start_paused = true)]
async fn handler_is_cancelled_when_its_lease_may_have_expired_and_renewals_hang() {
    let store = MemoryStore::new();
    let mut tx = store.begin();
    store.stage(&mut tx, Message::builder("orders").json(&17)).await.unwrap();
    tx.commit();
    let cancelled = Arc::new(Notify::new());
    let notify = Arc::clone(&cancelled);
    let handler = move |_: u64, context: Context| {
        let notify = Arc::clone(&notify);
        async move {
            context.cancellation().cancelled().await;
            notify.notify_one();
            Ok::<(), Failure>(())
        }
    };
    let queue = Queue::new("orders").on_json(handler).timeout(Duration::from_secs(3600));
    let worker = Worker::builder_on(Arc::new(UnresponsiveStore(store)), None).queue(queue).build().unwrap();
    let running = worker.start();
    tokio::time::timeout(Duration::from_secs(600), cancelled.notified())
        .await
        .expect("the handler was not cancelled");
    running.abort().await;
}
