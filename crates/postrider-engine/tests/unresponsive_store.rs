//! A store that does not answer.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use postrider_core::{
    ClaimRequest, ClaimedMessage, Error, Lease, LeaseSettlement, Message, OutboxExt, PauseRecord,
    PruneReport, PruneRequest, ScheduleName, Store, timetable::ScheduleReading,
};
use postrider_engine::{Context, Failure, Queue, Worker};
use postrider_stores::memory::MemoryStore;
use std::{
    future::pending,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::sync::Notify;

/// Renewals never return.
#[derive(Debug)]
struct UnresponsiveStore {
    store: MemoryStore,
}

postrider_core::forward_backend!(UnresponsiveStore, store: notifier, inspect, operate, schema);

#[async_trait]
impl Store for UnresponsiveStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        self.store.claim(request).await
    }

    async fn renew(&self, _: &[Lease], _: Duration) -> Result<Vec<Lease>, Error> {
        pending().await
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        self.store.settle(settlements).await
    }

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        self.store.count_isolated(lease).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        self.store.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.store.paused().await
    }

    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        Store::read_schedule(&self.store, schedule).await
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        Store::tick(&self.store, schedule, at, messages).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.store.ping().await
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
    let worker =
        Worker::builder(UnresponsiveStore { store }).without_notifications().queue(queue).build().unwrap();
    let running = worker.start();
    tokio::time::timeout(Duration::from_secs(600), cancelled.notified())
        .await
        .expect("the handler was not cancelled");
    running.abort().await;
}
