//! Transactions in which a handler's effects and the settlement of its message commit together.

use super::{PostgresStore, connections::ConnectionMode, error::store_error, names::Sql};
use postrider_core::{Error, LeaseSettlement, transactions::Transactions};
use sqlx::{PgPool, Postgres, Transaction};

/// Transactions of an sqlx pool in which the messages of a store are settled. Created by [`PostgresStore::transactions`].
#[derive(Debug, Clone)]
pub struct PostgresTransactions {
    pub(super) store: PostgresStore,
    pub(super) pool: PgPool,
    begin: &'static str,
}

impl PostgresTransactions {
    pub(super) fn new(store: PostgresStore, pool: PgPool) -> Self {
        Self { store, pool, begin: "begin" }
    }

    /// Begins transactions as `READ COMMITTED`, whatever the default of the database, the role or the pool. Follow-ups need it;
    /// for handlers the choice is yours: without this call they get the default isolation of your pool.
    #[must_use]
    pub fn read_committed(mut self) -> Self {
        self.begin = "begin isolation level read committed";
        self
    }

    /// A statement for the pool's connections, unprepared when they are behind a pooler.
    pub(super) fn sql(&self, template: &str) -> Sql {
        let sql = self.store.inner.names.sql(template);
        if self.store.inner.mode == ConnectionMode::Pooled { sql.unprepared() } else { sql }
    }
}

impl Transactions for PostgresTransactions {
    type Tx = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Tx, Error> {
        self.pool.begin_with(self.begin).await.map_err(store_error)
    }

    async fn settle_in(&self, tx: &mut Self::Tx, settle: &LeaseSettlement) -> Result<bool, Error> {
        let lost = self.store.settle_in_transaction(tx, std::slice::from_ref(settle)).await?;
        Ok(lost.is_empty())
    }

    async fn commit(&self, tx: Self::Tx) -> Result<(), Error> {
        tx.commit().await.map_err(store_error)
    }

    async fn rollback(&self, tx: Self::Tx) -> Result<(), Error> {
        tx.rollback().await.map_err(store_error)
    }
}
