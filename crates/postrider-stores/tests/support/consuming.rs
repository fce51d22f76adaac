//! A consumer fixture: a store under test, and a queue in memory as its source.

use async_trait::async_trait;
use postrider_core::{Incoming, Outgoing, Source, inspect::Inspect};
use postrider_testkit::{TransactFixture, consumer::ConsumerFixture};
use postrider_transports::memory::MemoryQueue;
use std::sync::Arc;

pub(crate) struct OnMemoryQueue<F> {
    pub(crate) store: F,
    pub(crate) queue: MemoryQueue,
}

impl<F> OnMemoryQueue<F> {
    pub(crate) fn new(store: F) -> Self {
        Self { store, queue: MemoryQueue::new("orders") }
    }
}

#[async_trait]
impl<F: TransactFixture> ConsumerFixture for OnMemoryQueue<F> {
    type Transactions = F::Transactions;
    type Outbox = F::Outbox;

    fn receive(&self) -> F::Transactions {
        self.store.transactions()
    }

    fn outbox(&self) -> F::Outbox {
        self.store.outbox()
    }

    fn inspect(&self) -> Arc<dyn Inspect> {
        self.store.inspect()
    }

    fn keeps_order(&self) -> bool {
        true
    }

    fn address(&self) -> String {
        self.queue.name().to_owned()
    }

    async fn send(&self, batch: Vec<Outgoing>) {
        batch.into_iter().for_each(|outgoing| self.queue.put(outgoing));
    }

    async fn send_bare(&self, body: &str) {
        self.queue.put(Incoming::new(self.queue.name(), body.to_owned()));
    }

    async fn source(&self) -> Arc<dyn Source> {
        Arc::new(self.queue.source())
    }
}
