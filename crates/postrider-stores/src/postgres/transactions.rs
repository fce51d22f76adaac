//! Transactions in which a handler's effects and the settlement of its message commit together.

use super::{PostgresStore, connections::ConnectionMode, error::store_error, names::Sql};
use crate::template::Template;
use postrider_core::Error;
use sqlx::{PgPool, Postgres, SqlSafeStr, Transaction};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

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
        let connection = self.pool.acquire().await.map_err(store_error)?;
        // Hidden in sqlx's documentation, and the only way to begin on a connection whose acquisition may be cancelled and whose
        // `begin` may not.
        let begin = Transaction::begin(connection, Some(self.begin.into_sql_str()));
        PendingBegin(Some(begin)).await.map_err(store_error)
    }

    /// A statement for the pool's connections, unprepared when they are behind a pooler.
    pub(super) fn sql(&self, template: &Template) -> Sql {
        let sql = self.store.inner.names.sql(template);
        if self.store.inner.mode == ConnectionMode::Pooled { sql.unprepared() } else { sql }
    }
}

type BeginFuture = Pin<Box<dyn Future<Output = Result<Transaction<'static, Postgres>, sqlx::Error>> + Send>>;

/// A `begin` that is sent to the server. If it is cancelled, it ends in a task of its own, which rolls back: sqlx up to 0.9.0 returns
/// the connection of a cancelled `begin` to the pool with an open transaction, and the writes of the next user would be lost.
struct PendingBegin(Option<BeginFuture>);

impl Future for PendingBegin {
    type Output = Result<Transaction<'static, Postgres>, sqlx::Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(begin) = &mut self.0 else { return Poll::Pending };
        let poll = begin.as_mut().poll(context);
        if poll.is_ready() {
            self.0 = None;
        }
        poll
    }
}

impl Drop for PendingBegin {
    fn drop(&mut self) {
        if let (Some(begin), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            // Without a runtime the pool is gone as well.
            runtime.spawn(begin);
        }
    }
}
