//! Transactions in which a handler's effects and the settlement of its message commit together.

use super::{PostgresStore, connections::ConnectionMode, error::store_error, names::Sql};
use crate::template::Template;
use postrider_core::Error;
use sqlx::{PgPool, Postgres, Row, SqlSafeStr, Transaction};
use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

/// Transactions of an sqlx pool in which the messages of a store are settled. Created by [`PostgresStore::transactions`].
#[derive(Debug, Clone)]
pub struct PostgresTransactions {
    pub(super) store: PostgresStore,
    pub(super) pool: PgPool,
    begin: &'static str,
    /// Whether the pool's transactions are known to be `READ COMMITTED`.
    is_read_committed: Arc<AtomicBool>,
}

impl PostgresTransactions {
    pub(super) fn new(store: PostgresStore, pool: PgPool) -> Self {
        Self { store, pool, begin: "begin", is_read_committed: Arc::default() }
    }

    /// Begins transactions as `READ COMMITTED`, whatever the default of the database, the role or the pool.
    ///
    /// Runners need that isolation, and refuse to begin transactions that are stricter by default: renewing the lease of a message
    /// while its handler runs changes the row that the transaction settles, so a stricter transaction could never commit after it.
    #[must_use]
    pub fn read_committed(mut self) -> Self {
        self.begin = "begin isolation level read committed";
        self.is_read_committed = Arc::new(AtomicBool::new(true));
        self
    }

    pub(super) async fn begin_transaction(&self) -> Result<Transaction<'static, Postgres>, Error> {
        let connection = self.pool.acquire().await.map_err(store_error)?;
        // Hidden in sqlx's documentation, and the only way to begin on a connection whose acquisition may be cancelled and whose
        // `begin` may not.
        let begin = Transaction::begin(connection, Some(self.begin.into_sql_str()));
        let mut tx = PendingBegin(Some(begin)).await.map_err(store_error)?;
        if !self.is_read_committed.load(Ordering::Relaxed) {
            self.check_isolation(&mut tx).await?;
            self.is_read_committed.store(true, Ordering::Relaxed);
        }
        Ok(tx)
    }

    /// Unavailable and not a failure of the message: the fault is in the deployment, and must not consume attempts.
    async fn check_isolation(&self, tx: &mut Transaction<'static, Postgres>) -> Result<(), Error> {
        let row = self.sql(&sql!(ISOLATION)).query().fetch_one(&mut **tx).await.map_err(store_error)?;
        match row.try_get(0).map_err(store_error)? {
            // PostgreSQL treats READ UNCOMMITTED as READ COMMITTED.
            "read committed" | "read uncommitted" => Ok(()),
            isolation => {
                let text = format!(
                    "transactions of the application's pool are {isolation} by default, and could not be committed after the \
                     lease of their message was renewed; use PostgresTransactions::read_committed, or remove the default of the \
                     database, the role or the pool"
                );
                Err(Error::Unavailable(text.into()))
            }
        }
    }

    /// A statement for the pool's connections, unprepared when they are behind a pooler.
    pub(super) fn sql(&self, template: &Template) -> Sql {
        let sql = self.store.inner.names.sql(template);
        if self.store.inner.mode == ConnectionMode::Pooled { sql.unprepared() } else { sql }
    }
}

const ISOLATION: &str = "select current_setting('transaction_isolation')";

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
