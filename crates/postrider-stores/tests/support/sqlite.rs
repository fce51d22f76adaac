//! The SQLite store as the suites see it: a file of its own for each test.

use async_trait::async_trait;
use postrider_core::{Backend, audit::AuditChain, schema::Schema as _};
use postrider_stores::sqlite::{SqliteInbox, SqliteOptions, SqliteOutbox, SqliteStore, SqliteTransactions};
use postrider_testkit::{Features, Fixture, TransactFixture, saga::SagaFixture};
use sqlx::{
    Executor, Sqlite, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};
use std::{path::PathBuf, sync::Arc, time::Duration};
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct SqliteFixture {
    pub(crate) store: SqliteStore,
    /// The application's own pool.
    pub(crate) app: SqlitePool,
    pub(crate) folder: TempDir,
}

impl SqliteFixture {
    pub(crate) async fn new() -> Self {
        Self::open(|options| options).await
    }

    pub(crate) async fn open(configure: impl FnOnce(SqliteOptions) -> SqliteOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shop.db");
        let store = SqliteStore::open_with(configure(SqliteOptions::new(&path))).await.unwrap();
        store.migrate().await.unwrap();
        // No test pulls the plug: what the application writes need not reach the disk.
        let connect = SqliteConnectOptions::new().filename(&path).synchronous(SqliteSynchronous::Off);
        let connect = connect.busy_timeout(Duration::from_secs(30));
        let app = SqlitePoolOptions::new().max_connections(20).connect_with(connect).await.unwrap();
        Self { store, app, folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("shop.db")
    }

    /// Runs statements as the operator of the database.
    pub(crate) async fn run(&self, sql: &'static str) {
        self.app.execute(sql).await.unwrap();
    }
}

#[async_trait]
impl Fixture for SqliteFixture {
    type Tx = Transaction<'static, Sqlite>;
    type Outbox = SqliteOutbox;
    type Inbox = SqliteInbox;

    /// One transaction writes at a time.
    fn features(&self) -> Features {
        Features { concurrent_transactions: false }
    }

    fn store(&self) -> Arc<dyn Backend> {
        Arc::new(self.store.clone())
    }

    async fn another_store(&self) -> Arc<dyn Backend> {
        Arc::new(SqliteStore::open(self.path()).await.unwrap())
    }

    fn outbox(&self) -> SqliteOutbox {
        self.store.outbox()
    }

    fn inbox(&self) -> SqliteInbox {
        self.store.inbox()
    }

    /// As applications do it: the lock is taken by the first statement that writes, which is the outbox's.
    async fn begin(&self) -> Self::Tx {
        self.app.begin().await.unwrap()
    }

    async fn commit(&self, tx: Self::Tx) {
        tx.commit().await.unwrap();
    }

    async fn rollback(&self, tx: Self::Tx) {
        tx.rollback().await.unwrap();
    }

    async fn savepoint(&self, tx: &mut Self::Tx) {
        tx.execute("savepoint here").await.unwrap();
    }

    async fn rollback_to_savepoint(&self, tx: &mut Self::Tx) {
        tx.execute("rollback to savepoint here").await.unwrap();
    }

    /// Moves every time in the tables back, which is the same as letting the clock go on.
    async fn advance(&self, by: Duration) {
        let by = i64::try_from(by.as_micros()).unwrap();
        let mut tx = self.app.begin_with("begin immediate").await.unwrap();
        for statement in [
            "update postrider_ready set lease_until = lease_until - ?1, due_at = due_at - ?1, staged_at = staged_at - ?1, \
             first_failed_at = first_failed_at - ?1",
            "update postrider_scheduled set due_at = due_at - ?1, staged_at = staged_at - ?1, first_failed_at = first_failed_at - ?1",
            "update postrider_lane set lease_until = lease_until - ?1 where token is not null",
            "update postrider_lane set due_at = due_at - ?1 where due_at < 9223372036854775807",
            "update postrider_idle set until = until - ?1",
            "update postrider_schedule set last_at = last_at - ?1",
            "update postrider_inbox set admitted_at = admitted_at - ?1",
            "update postrider_dead set failed_at = failed_at - ?1, staged_at = staged_at - ?1",
            "update postrider_archive set expires_at = expires_at - ?1, archived_at = archived_at - ?1",
        ] {
            sqlx::query(statement).bind(by).execute(&mut *tx).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    async fn break_dead_letters(&self, broken: bool) {
        self.run(if broken {
            "create trigger broken before insert on postrider_dead begin select raise(abort, 'broken'); end"
        } else {
            "drop trigger broken"
        })
        .await;
    }
}

impl SagaFixture for SqliteFixture {
    type Sagas = SqliteTransactions;

    fn sagas(&self) -> SqliteTransactions {
        self.transactions()
    }

    fn chain(&self) -> Arc<dyn AuditChain> {
        Arc::new(self.store.ledger())
    }
}

impl TransactFixture for SqliteFixture {
    type Transactions = SqliteTransactions;

    fn transactions(&self) -> SqliteTransactions {
        self.store.transactions(self.app.clone())
    }
}
