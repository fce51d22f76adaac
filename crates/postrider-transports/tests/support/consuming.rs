//! A source under test, with a store in memory.

use async_trait::async_trait;
use postrider_core::{Outgoing, Source, inspect::Inspect};
use postrider_stores::memory::MemoryStore;
use postrider_testkit::{consumer::ConsumerFixture, source::SourceFixture};
use std::sync::Arc;

pub(crate) struct OnMemoryStore<S> {
    source: S,
    place: String,
    store: MemoryStore,
}

impl<S: SourceFixture> OnMemoryStore<S> {
    pub(crate) async fn new(source: S) -> Self {
        let place = source.place().await;
        Self { source, place, store: MemoryStore::new() }
    }
}

#[async_trait]
impl<S: SourceFixture> ConsumerFixture for OnMemoryStore<S> {
    type Receive = MemoryStore;
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

    fn place(&self) -> String {
        self.place.clone()
    }

    async fn send(&self, batch: Vec<Outgoing>) {
        self.source.send(&self.place, batch).await;
    }

    async fn send_bare(&self, body: &str) {
        self.source.send_bare(&self.place, None, body).await;
    }

    async fn source(&self) -> Arc<dyn Source> {
        self.source.source(&self.place).await
    }
}
