//! The shop in PostgreSQL.

use super::shop::{Shop, TABLES};
use postrider::{
    ClientOptions, Error, Message, OutboxExt,
    postgres::{PostgresStore, PostgresTransactions, guard},
    schema::Schema,
};
use sqlx::{
    PgPool, Postgres, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};

/// Connections for producers and transactional handlers together.
const CONNECTIONS: u32 = 16;

#[derive(Debug, Clone)]
pub(super) struct PostgresShop {
    store: PostgresStore,
    pool: PgPool,
    transactions: PostgresTransactions,
}

impl PostgresShop {
    /// Connects, and creates missing tables.
    pub(super) async fn open(client: ClientOptions, options: PgConnectOptions) -> Result<Self, Error> {
        let store = PostgresStore::connect(client).await?;
        store.migrate().await?;
        let pool = guard(PgPoolOptions::new().max_connections(CONNECTIONS))
            .connect_with(options)
            .await
            .map_err(|error| Error::Unavailable(Box::new(error)))?;
        let mut tx = pool.begin().await.map_err(|error| Error::Unavailable(Box::new(error)))?;
        // Two shops that open at once must not both create the tables.
        for sql in ["select pg_advisory_xact_lock(7077052)"].into_iter().chain(TABLES) {
            let created = sqlx::query(sql).execute(&mut *tx).await;
            created.map_err(|error| Error::Other(Box::new(error)))?;
        }
        tx.commit().await.map_err(|error| Error::Other(Box::new(error)))?;
        let transactions = store.transactions(pool.clone());
        Ok(Self { store, pool, transactions })
    }
}

impl Shop for PostgresShop {
    type Tx = Transaction<'static, Postgres>;
    type Transactions = PostgresTransactions;
    type Store = PostgresStore;

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    fn transactions(&self) -> &PostgresTransactions {
        &self.transactions
    }

    async fn stage(&self, tx: &mut Self::Tx, message: Message) -> Result<(), Error> {
        self.store.outbox().stage(tx, message).await.map(drop)
    }

    async fn write(&self, tx: &mut Self::Tx, sql: &'static str, values: &[&str]) -> Result<(), sqlx::Error> {
        let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
        query.execute(&mut **tx).await.map(drop)
    }

    async fn write_alone(&self, sql: &'static str, value: String) -> Result<(), sqlx::Error> {
        sqlx::query(sql).bind(value).execute(&self.pool).await.map(drop)
    }

    async fn read(&self, sql: &'static str, value: String) -> Result<Vec<(String, i64, i64)>, sqlx::Error> {
        sqlx::query_as(sql).bind(value).fetch_all(&self.pool).await
    }

    async fn close(&self) {
        self.pool.close().await;
        self.store.close().await;
    }
}
