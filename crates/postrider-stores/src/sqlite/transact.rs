//! Transactions in which a handler's effects and the end of its message commit together.

use super::{
    SqliteStore,
    error::{is_busy, store_error},
    settle,
    writer::Pauses,
};
use postrider_core::{Error, Settle, transact::Transact};
use sqlx::{Row, Sqlite, SqlitePool, Transaction};

/// Transactions of a pool of sqlx in which the messages of a store end. Made by
/// [`SqliteStore::transactions`].
#[derive(Debug, Clone)]
pub struct SqliteTransactions {
    pub(super) store: SqliteStore,
    pub(super) pool: SqlitePool,
}

impl SqliteTransactions {
    pub(super) fn new(store: SqliteStore, pool: SqlitePool) -> Self {
        Self { store, pool }
    }
}

impl Transact for SqliteTransactions {
    type Tx = Transaction<'static, Sqlite>;

    /// Takes the lock at once, so that nothing inside can find it taken, and waits for other writers to do so.
    async fn begin(&self) -> Result<Self::Tx, Error> {
        let mut pauses = Pauses::lasting(self.store.inner.options.patience);
        loop {
            match self.pool.begin_with("begin immediate").await {
                Ok(tx) => return Ok(tx),
                Err(error) if is_busy(&error) && pauses.pause().await => {}
                Err(error) => return Err(store_error(error)),
            }
        }
    }

    async fn settle_in(&self, tx: &mut Self::Tx, settle: &Settle) -> Result<bool, Error> {
        let names = &self.store.inner.names;
        let row = names.sql("select {now}").query().fetch_one(&mut **tx).await.map_err(store_error)?;
        let now = row.try_get(0).map_err(store_error)?;
        let settles = std::slice::from_ref(settle);
        let lost = settle::settle(tx, names, settles, now).await?;
        let messages = Settle::staged_by(settles, &lost);
        self.store.outbox().stage_on(&mut **tx, &messages).await?;
        Ok(lost.is_empty())
    }

    async fn commit(&self, tx: Self::Tx) -> Result<(), Error> {
        tx.commit().await.map_err(store_error)
    }

    async fn rollback(&self, tx: Self::Tx) -> Result<(), Error> {
        tx.rollback().await.map_err(store_error)
    }
}
