//! What a suite needs to know about the store it tests.

use async_trait::async_trait;
use postrider_core::{
    Inbox, Outbox, Receive, Store,
    inspect::{Inspect, Operate},
    schema::Schema,
    timetable::Timetable,
    wake::Wake,
};
use std::{sync::Arc, time::Duration};

/// One empty store, made for one test, and the hands to act on it from outside.
#[async_trait]
pub trait Fixture: Sized + Send + Sync + 'static {
    /// The caller's own transaction.
    type Tx: Send + 'static;
    /// Stages in such a transaction.
    type Outbox: Outbox<Self::Tx> + Clone + Send + Sync + 'static;
    /// Admits in such a transaction.
    type Inbox: Inbox<Self::Tx> + Clone + Send + Sync + 'static;

    /// What the store can do.
    fn features(&self) -> Features;

    /// The store as this process holds it.
    fn store(&self) -> Arc<dyn Store>;

    /// The same messages through a second handle that shares no memory with the first, as another process has it.
    async fn another_store(&self) -> Arc<dyn Store>;

    /// The operator's hands.
    fn operate(&self) -> Arc<dyn Operate>;

    /// The operator's view.
    fn inspect(&self) -> Arc<dyn Inspect> {
        self.operate()
    }

    /// The tables and the declared queues.
    fn schema(&self) -> Arc<dyn Schema>;

    /// The wake-up.
    fn wake(&self) -> Arc<dyn Wake>;

    /// The schedules.
    fn timetable(&self) -> Arc<dyn Timetable>;

    /// The same schedules through a handle that shares no memory with the others, as another process has it.
    async fn another_timetable(&self) -> Arc<dyn Timetable>;

    /// The producer's side.
    fn outbox(&self) -> Self::Outbox;

    /// The receiver's side.
    fn inbox(&self) -> Self::Inbox;

    /// Begins a transaction of the caller.
    async fn begin(&self) -> Self::Tx;

    /// Commits it.
    async fn commit(&self, tx: Self::Tx);

    /// Rolls it back.
    async fn rollback(&self, tx: Self::Tx);

    /// Sets a savepoint in a transaction; a later one replaces it.
    async fn savepoint(&self, tx: &mut Self::Tx);

    /// Undoes what happened in a transaction since its savepoint.
    async fn rollback_to_savepoint(&self, tx: &mut Self::Tx);

    /// Lets so much of the store's time pass, without waiting: every lease and due time comes closer.
    async fn advance(&self, by: Duration);

    /// Breaks or mends the dead-letter room, so that writing to it fails.
    async fn break_dead_letters(&self, broken: bool);
}

/// A fixture whose store can end claims in the caller's transactions.
pub trait TransactFixture: Fixture {
    /// Ends claims, and receives, in such a transaction.
    type Transactions: Receive<Tx = Self::Tx, Store: Operate>;

    /// The transactions that handlers run in.
    fn transactions(&self) -> Self::Transactions;
}

/// What a store can do. A difference that is declared here is also listed in `docs/guarantees.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Transactions run side by side: one may commit after another that began later. SQLite has one writer.
    pub concurrent_transactions: bool,
}
