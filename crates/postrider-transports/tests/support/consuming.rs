//! A consumer fixture: a source under test with a memory store.

use async_trait::async_trait;
use postrider_core::{Outgoing, Source, inspect::Inspect};
use postrider_stores::memory::MemoryStore;
use postrider_testkit::{consumer::ConsumerFixture, source::SourceFixture};
use std::sync::Arc;

pub(crate) struct OnMemoryStore<S> {
    source: S,
    address: String,
    store: MemoryStore,
}

impl<S: SourceFixture> OnMemoryStore<S> {
    pub(crate) async fn new(source: S) -> Self {
        let address = source.address().await;
        Self { source, address, store: MemoryStore::new() }
    }
}

#[async_trait]
impl<S: SourceFixture> ConsumerFixture for OnMemoryStore<S> {
    type Transactions = MemoryStore;
    type Outbox = MemoryStore;

    fn receive(&self) -> MemoryStore {
        self.store.clone()
    }

    fn outbox(&self) -> MemoryStore {
        self.store.clone()
    }

    fn inspect(&self) -> Arc<dyn Inspect> {
        Arc::new(self.store.clone())
    }

    fn keeps_order(&self) -> bool {
        self.source.features().keeps_order
    }

    fn address(&self) -> String {
        self.address.clone()
    }

    async fn send(&self, batch: Vec<Outgoing>) {
        self.source.send(&self.address, batch).await;
    }

    async fn send_bare(&self, body: &str) {
        self.source.send_bare(&self.address, None, body).await;
    }

    async fn source(&self) -> Arc<dyn Source> {
        self.source.source(&self.address).await
    }
}
