//! The interface between a suite and the store it tests.

use async_trait::async_trait;
use postrider_core::{Backend, Inbox, Outbox, TxBackend};
use std::{sync::Arc, time::Duration};

/// One empty store, created for one test, with every handle that a case needs. A fixture of database roles has a handle for each duty.
#[async_trait]
pub trait Fixture: Sized + Send + Sync + 'static {
    /// The transaction of the application's driver.
    type Tx: Send + 'static;
    /// The outbox: stages messages in such a transaction.
    type Outbox: Outbox<Self::Tx> + Clone + Send + Sync + 'static;
    /// The inbox: admits messages in such a transaction.
    type Inbox: Inbox<Self::Tx> + Clone + Send + Sync + 'static;

    /// The features that the store supports.
    fn features(&self) -> Features;

    /// The handle of this process.
    fn store(&self) -> Arc<dyn Backend>;

    /// A second handle to the same messages that shares no memory with the first, as in another process.
    async fn another_store(&self) -> Arc<dyn Backend>;

    /// The handle of an operator.
    fn operate(&self) -> Arc<dyn Backend> {
        self.store()
    }

    /// The handle that only reads.
    fn inspect(&self) -> Arc<dyn Backend> {
        self.operate()
    }

    /// The handle that migrates and declares queues.
    fn schema(&self) -> Arc<dyn Backend> {
        self.store()
    }

    /// The handle that is notified.
    fn wake(&self) -> Arc<dyn Backend> {
        self.store()
    }

    /// The handle of a scheduler.
    fn timetable(&self) -> Arc<dyn Backend> {
        self.store()
    }

    /// The handle of another scheduler, which shares no memory with the others, as in another process.
    async fn another_timetable(&self) -> Arc<dyn Backend> {
        self.another_store().await
    }

    /// The producer's handle.
    fn outbox(&self) -> Self::Outbox;

    /// The consumer's handle.
    fn inbox(&self) -> Self::Inbox;

    /// Begins a transaction of the application.
    async fn begin(&self) -> Self::Tx;

    /// Commits it.
    async fn commit(&self, tx: Self::Tx);

    /// Rolls it back.
    async fn rollback(&self, tx: Self::Tx);

    /// Sets a savepoint in a transaction; a later one replaces it.
    async fn savepoint(&self, tx: &mut Self::Tx);

    /// Rolls a transaction back to its savepoint.
    async fn rollback_to_savepoint(&self, tx: &mut Self::Tx);

    /// Moves the store's clock forward without waiting: timers and retries become due, and leases expire.
    async fn advance(&self, by: Duration);

    /// Makes writes of dead letters fail (`true`) or succeed again (`false`).
    async fn break_dead_letters(&self, broken: bool);
}

/// A fixture whose store can settle claims in the application's transactions.
pub trait TransactFixture: Fixture {
    /// Settles claims and admits messages in such a transaction.
    type Transactions: TxBackend<Tx = Self::Tx>;

    /// The transactions that handlers run in.
    fn transactions(&self) -> Self::Transactions;
}

/// The optional features of a store. Every difference declared here is also listed in `docs/guarantees.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Transactions run concurrently: one may commit after another that began later. SQLite has one writer.
    pub concurrent_transactions: bool,
}
