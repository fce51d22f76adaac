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

    /// Takes the write lock first, so that no statement inside can find it taken, and waits for other writers. The savepoint is the
    /// mark by which [`verify`](Self::verify) recognises the transaction.
    pub(super) async fn begin_immediate(&self) -> Result<Transaction<'static, Sqlite>, Error> {
        let mut backoff = LockBackoff::for_duration(self.store.inner.options.busy_timeout);
        loop {
            match self.pool.begin_with("begin immediate; savepoint postrider_transaction").await {
                Ok(tx) => return Ok(tx),
                Err(error) if is_busy(&error) && backoff.wait().await => {}
                Err(error) => return Err(store_error(error)),
            }
        }
    }

    /// Fails when the transaction has ended unnoticed: SQLite rolls back by itself after some errors, such as a full disk, and a
    /// handler that goes on after one runs its later statements outside of a transaction.
    pub(super) async fn verify(&self, tx: &mut Transaction<'static, Sqlite>) -> Result<(), Error> {
        let names = &self.store.inner.names;
        let mark = sql!("release postrider_transaction; savepoint postrider_transaction");
        let Err(error) = names.sql(&mark).query().execute(&mut **tx).await else { return Ok(()) };
        if !error.to_string().contains("no such savepoint") {
            return Err(store_error(error));
        }
        // sqlx will roll back what it takes for the transaction. Without one that fails, and the pool lends a connection on which
        // no transaction can begin. With one that has no mark (of the application, or reopened already) this statement fails.
        names.sql(&sql!("begin")).query().execute(&mut **tx).await.ok();
        let text = "SQLite rolled the transaction back after an earlier error in it, such as a full disk, and the handler went on; \
                    return that error from the handler";
        Err(Error::Other(text.into()))
    }

    /// Rolls back, even if SQLite has done so already.
    pub(super) async fn roll_back(&self, mut tx: Transaction<'static, Sqlite>) -> Result<(), Error> {
        self.verify(&mut tx).await.ok();
        tx.rollback().await.map_err(store_error)
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
