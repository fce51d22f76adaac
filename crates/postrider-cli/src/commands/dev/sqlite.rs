//! The shop in a SQLite file.

use super::shop::{Shop, TABLES};
use postrider::{
    Error, Message, OutboxExt,
    schema::Schema,
    sqlite::{Durability, SqliteOptions, SqliteStore, SqliteTransactions},
};
use sqlx::{
    Sqlite, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};
use std::{path::Path, time::Duration};

#[derive(Debug, Clone)]
pub(super) struct SqliteShop {
    store: SqliteStore,
    pool: SqlitePool,
    transactions: SqliteTransactions,
}

impl SqliteShop {
    /// Opens the file, and creates it and its tables when they are missing.
    pub(super) async fn open(path: &Path, durability: Durability) -> Result<Self, Error> {
        let store = SqliteStore::open_with(SqliteOptions::new(path).with_durability(durability)).await?;
        store.migrate().await?;
        let synchronous = match durability {
            Durability::Full => SqliteSynchronous::Full,
            Durability::Normal => SqliteSynchronous::Normal,
        };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .synchronous(synchronous)
            .busy_timeout(Duration::from_millis(50));
        // SQLite lets one transaction write at a time. Writers wait in the queue of the pool, which is fair.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .test_before_acquire(false)
            .connect_with(options)
            .await
            .map_err(|error| Error::Unavailable(Box::new(error)))?;
        for sql in TABLES {
            let created = sqlx::query(sql).execute(&pool).await;
            created.map_err(|error| Error::Other(Box::new(error)))?;
        }
        let transactions = store.transactions(pool.clone());
        Ok(Self { store, pool, transactions })
    }
}

impl Shop for SqliteShop {
    type Tx = Transaction<'static, Sqlite>;
    type Transactions = SqliteTransactions;
    type Store = SqliteStore;

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    fn transactions(&self) -> &SqliteTransactions {
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
