//! The store that tests run on is a store like every other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use async_trait::async_trait;
use postrider_core::{Store, inspect::Operate, schema::Schema, timetable::Timetable, wake::Wake};
use postrider_stores::memory::Transaction;
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
    type Tx = Transaction;
    type Outbox = TestStore;
    type Inbox = TestStore;

    fn features(&self) -> Features {
        Features { concurrent_transactions: true }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    /// One process is all there is: another handle to the same messages.
    async fn another_store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn operate(&self) -> Arc<dyn Operate> {
        Arc::new(self.store.clone())
    }

    fn schema(&self) -> Arc<dyn Schema> {
        Arc::new(self.store.clone())
    }

    fn wake(&self) -> Arc<dyn Wake> {
        Arc::new(self.store.clone())
    }

    fn timetable(&self) -> Arc<dyn Timetable> {
        Arc::new(self.store.clone())
    }

    async fn another_timetable(&self) -> Arc<dyn Timetable> {
        Arc::new(self.store.clone())
    }

    fn outbox(&self) -> TestStore {
        self.store.clone()
    }

    fn inbox(&self) -> TestStore {
        self.store.clone()
    }

    async fn begin(&self) -> Transaction {
        self.store.begin()
    }

    async fn commit(&self, tx: Transaction) {
        tx.commit();
    }

    async fn rollback(&self, tx: Transaction) {
        tx.rollback();
    }

    async fn savepoint(&self, tx: &mut Transaction) {
        tx.savepoint();
    }

    async fn rollback_to_savepoint(&self, tx: &mut Transaction) {
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
