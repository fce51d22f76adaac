//! Connections for the store's own transactions: the ticks of schedules, replays, and settlements that stage messages.

use super::{
    connections::{ConnectionMode, Connections},
    error::store_error,
    pool,
    pooled_connection::PooledConnection,
};
use postrider_core::Error;
use sqlx::{Connection, Postgres, Transaction};

/// A pooled connection that is closed on drop unless it is released: after an error or a cancelled `begin` a transaction may be
/// open in it, and the pool would lend it out in that state.
pub(super) struct TransactionConnection(PooledConnection);

impl TransactionConnection {
    pub(super) async fn acquire(connections: &Connections) -> Result<Self, Error> {
        let mut connection = connections.acquire().await?;
        connection.close_on_drop(true);
        Ok(Self(connection))
    }

    pub(super) async fn begin(&mut self, mode: ConnectionMode) -> Result<Transaction<'_, Postgres>, Error> {
        let begin = match mode {
            ConnectionMode::Direct => "begin",
            ConnectionMode::Pooled => pool::BEGIN,
        };
        self.0.begin_with(begin).await.map_err(store_error)
    }

    /// Returns the connection to the pool.
    pub(super) fn release(mut self) {
        self.0.close_on_drop(false);
    }
}
