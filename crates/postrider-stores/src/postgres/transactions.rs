//! Transactions in which a handler's effects and the settlement of its message commit together.

use super::{PostgresStore, connections::ConnectionMode, error::store_error, names::Sql};
use crate::template::Template;
use postrider_core::Error;
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

    pub(super) async fn begin_transaction(&self) -> Result<Transaction<'static, Postgres>, Error> {
        self.pool.begin_with(self.begin).await.map_err(store_error)
    }

    /// A statement for the pool's connections, unprepared when they are behind a pooler.
    pub(super) fn sql(&self, template: &Template) -> Sql {
        let sql = self.store.inner.names.sql(template);
        if self.store.inner.mode == ConnectionMode::Pooled { sql.unprepared() } else { sql }
    }
}
