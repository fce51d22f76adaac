//! Transactions in which a handler's effects and the settlement of its message commit together.

use super::{
    SqliteStore,
    error::{is_busy, store_error},
    settle,
    writer::LockBackoff,
};
use postrider_core::{Error, LeaseSettlement};
use sqlx::{Row, Sqlite, SqlitePool, Transaction};

/// Transactions of an sqlx pool in which the messages of a store are settled. Created by
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

    /// Takes the write lock first, so that no statement inside can find it taken, and waits for other writers.
    pub(super) async fn begin_immediate(&self) -> Result<Transaction<'static, Sqlite>, Error> {
        let mut backoff = LockBackoff::for_duration(self.store.inner.options.busy_timeout);
        loop {
            match self.pool.begin_with("begin immediate").await {
                Ok(tx) => return Ok(tx),
                Err(error) if is_busy(&error) && backoff.wait().await => {}
                Err(error) => return Err(store_error(error)),
            }
        }
    }

    pub(super) async fn settle_in(
        &self,
        tx: &mut Transaction<'static, Sqlite>,
        settle: &LeaseSettlement,
    ) -> Result<bool, Error> {
        let names = &self.store.inner.names;
        let row = names.sql(&sql!("select {now}")).query().fetch_one(&mut **tx).await.map_err(store_error)?;
        let now = row.try_get(0).map_err(store_error)?;
        let settles = std::slice::from_ref(settle);
        let lost = settle::settle(tx, names, settles, now).await?;
        let messages = LeaseSettlement::staged_by(settles, &lost);
        self.store.outbox().stage_on(&mut **tx, &messages).await?;
        Ok(lost.is_empty())
    }
}
