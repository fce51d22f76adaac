//! The fixture of the PostgreSQL store: a database of its own for each test.

use async_trait::async_trait;
use postrider_core::{Backend, audit::AuditChain, schema::Schema as _};
use postrider_stores::postgres::{
    PostgresInbox, PostgresOptions, PostgresOutbox, PostgresStore, PostgresTransactions,
};
use postrider_testkit::{Features, Fixture, TransactFixture, postgres::TestDatabase, saga::SagaFixture};
use sqlx::{Executor, PgPool, Postgres, Transaction, postgres::PgPoolOptions};
use std::{sync::Arc, time::Duration};

#[derive(Debug)]
pub(crate) struct PostgresFixture {
    pub(crate) store: PostgresStore,
    /// The application's own pool.
    pub(crate) app: PgPool,
    pub(crate) database: TestDatabase,
}

impl PostgresFixture {
    pub(crate) async fn new() -> Self {
        Self::open(|options| options).await
    }

    pub(crate) async fn open(configure: impl Fn(PostgresOptions) -> PostgresOptions) -> Self {
        let database = migrated().await;
        let store =
            PostgresStore::open(configure(PostgresOptions::new(database.url()).unwrap())).await.unwrap();
        let app = PgPoolOptions::new().max_connections(20).connect(database.url()).await.unwrap();
        Self { store, app, database }
    }

    async fn run_all(&self, statements: &[&'static str], by: Duration) -> Result<(), sqlx::Error> {
        let mut tx = self.app.begin().await?;
        for statement in statements {
            sqlx::query(*statement).bind(by).execute(&mut *tx).await?;
        }
        tx.commit().await
    }

    /// Runs statements as the operator of the database.
    pub(crate) async fn run(&self, sql: &'static str) {
        self.app.execute(sql).await.unwrap();
    }
}

async fn migrated() -> TestDatabase {
    // The SQL is the version of the template database: a changed migration creates a new one.
    let server =
        PostgresStore::open(PostgresOptions::new(postrider_testkit::postgres::server_url()).unwrap());
    let version = server.await.unwrap().print();
    TestDatabase::filled(&version, |url| async move {
        let store = PostgresStore::connect(&url).await.unwrap();
        store.migrate().await.unwrap();
        store.close().await;
    })
    .await
}

#[async_trait]
impl Fixture for PostgresFixture {
    type Tx = Transaction<'static, Postgres>;
    type Outbox = PostgresOutbox;
    type Inbox = PostgresInbox;

    fn features(&self) -> Features {
        Features { concurrent_transactions: true }
    }

    fn store(&self) -> Arc<dyn Backend> {
        Arc::new(self.store.clone())
    }

    async fn another_store(&self) -> Arc<dyn Backend> {
        Arc::new(PostgresStore::connect(self.database.url()).await.unwrap())
    }

    fn outbox(&self) -> PostgresOutbox {
        self.store.outbox()
    }

    fn inbox(&self) -> PostgresInbox {
        self.store.inbox()
    }

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

    /// Moves every time in the tables back, which has the effect of advancing the clock.
    async fn advance(&self, by: Duration) {
        let statements = [
            "update postrider.ready set lease_until = lease_until - $1, due_at = due_at - $1, staged_at = staged_at - $1, \
             first_failed_at = first_failed_at - $1",
            "update postrider.scheduled set due_at = due_at - $1, staged_at = staged_at - $1, first_failed_at = first_failed_at - $1",
            "update postrider.lane set lease_until = lease_until - $1, due_at = due_at - $1",
            "update postrider.idle set until = until - $1",
            "update postrider.schedule set last_at = last_at - $1",
            "update postrider.inbox set admitted_at = admitted_at - $1",
            "update postrider.dead set failed_at = failed_at - $1, staged_at = staged_at - $1",
            "update postrider.archive set expires_at = expires_at - $1, archived_at = archived_at - $1",
        ];
        // A statement that a test has cancelled may still be running, and holds its locks in another order.
        while let Err(error) = self.run_all(&statements, by).await {
            let code =
                error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
            assert_eq!(code.as_deref(), Some("40P01"), "{error}");
        }
    }

    async fn break_dead_letters(&self, broken: bool) {
        self.run(if broken {
            "alter table postrider.dead add constraint broken check (false) not valid"
        } else {
            "alter table postrider.dead drop constraint broken"
        })
        .await;
    }
}

impl SagaFixture for PostgresFixture {
    type Sagas = PostgresTransactions;

    fn sagas(&self) -> PostgresTransactions {
        self.transactions()
    }

    fn chain(&self) -> Arc<dyn AuditChain> {
        Arc::new(self.store.ledger())
    }
}

impl TransactFixture for PostgresFixture {
    type Transactions = PostgresTransactions;

    fn transactions(&self) -> PostgresTransactions {
        self.store.transactions(self.app.clone())
    }
}
