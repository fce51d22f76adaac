//! The test store passes the suite of every store.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use postrider_core::Backend;
use postrider_stores::memory::MemoryTransaction;
use postrider_testing::TestStore;
use postrider_testkit::{Features, Fixture};
use std::{
    future::{Ready, ready},
    sync::Arc,
    time::Duration,
};

struct TestFixture {
    store: TestStore,
}

fn testing() -> Ready<TestFixture> {
    ready(TestFixture { store: TestStore::new() })
}

#[async_trait]
impl Fixture for TestFixture {
    type Tx = MemoryTransaction;
    type Outbox = TestStore;
    type Inbox = TestStore;

    fn features(&self) -> Features {
        Features { concurrent_transactions: true }
    }

    fn store(&self) -> Arc<dyn Backend> {
        Arc::new(self.store.clone())
    }

    /// There is one process only: another handle to the same messages.
    async fn another_store(&self) -> Arc<dyn Backend> {
        Arc::new(self.store.clone())
    }

    fn outbox(&self) -> TestStore {
        self.store.clone()
    }

    fn inbox(&self) -> TestStore {
        self.store.clone()
    }

    async fn begin(&self) -> MemoryTransaction {
        self.store.begin()
    }

    async fn commit(&self, tx: MemoryTransaction) {
        tx.commit();
    }

    async fn rollback(&self, tx: MemoryTransaction) {
        tx.rollback();
    }

    async fn savepoint(&self, tx: &mut MemoryTransaction) {
        tx.savepoint();
    }

    async fn rollback_to_savepoint(&self, tx: &mut MemoryTransaction) {
        tx.rollback_to_savepoint();
    }

    async fn advance(&self, by: Duration) {
        self.store.advance(by);
    }

    async fn break_dead_letters(&self, broken: bool) {
        self.store.break_dead_letters(broken);
    }
}

postrider_testkit::store_suite!(testing);
