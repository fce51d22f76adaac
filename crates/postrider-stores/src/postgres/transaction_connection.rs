//! Connections for the store's own transactions: the ticks of schedules, replays, and settlements that stage messages.

use super::{connections::ConnectionMode, error::store_error, pool};
use postrider_core::Error;
use sqlx::{Connection, PgPool, Postgres, Transaction, pool::PoolConnection};

/// A pooled connection that is closed on drop unless it is released: after an error or a cancelled `begin` a transaction may be
/// open in it, and the pool would lend it out in that state.
pub(super) struct TransactionConnection(Option<PoolConnection<Postgres>>);

impl TransactionConnection {
    pub(super) async fn acquire(pool: &PgPool) -> Result<Self, Error> {
        pool.acquire().await.map(|connection| Self(Some(connection))).map_err(store_error)
    }

    pub(super) async fn begin(&mut self, mode: ConnectionMode) -> Result<Transaction<'_, Postgres>, Error> {
        let begin = match mode {
            ConnectionMode::Direct => "begin",
            ConnectionMode::Pooled => pool::BEGIN,
        };
        let connection =
            self.0.as_mut().ok_or_else(|| Error::Other("the connection was released already".into()))?;
        connection.begin_with(begin).await.map_err(store_error)
    }

    /// Returns the connection to the pool.
    pub(super) fn release(mut self) {
        self.0.take();
    }
}

impl Drop for TransactionConnection {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}
