//! The logs of sagas. One transaction writes at a time: the holder of the write lock has exclusive access to every saga.

use super::{
    SqliteTransactions,
    drivers::{Driver, DriverRow},
    queues,
    timestamp::Micros,
};
use postrider_core::{
    Error, MessageId,
    saga::{LogEntry, read, written},
};
use sqlx::{Sqlite, Transaction};

type Tx = Transaction<'static, Sqlite>;

const READ: &str = "select l.body from {saga_log} l where l.saga = ?1 order by l.n";
const APPEND: &str = "insert into {saga_log} (saga, n, at, body) values (?1, ?2, ?3, ?4)";
const FORGET: &str = "delete from {saga_log} where saga = ?1";

impl SqliteTransactions {
    pub(super) async fn read_log(&self, tx: &mut Tx, saga: MessageId) -> Result<Vec<LogEntry>, Error> {
        let names = &self.store.inner.names;
        queues::lock(&mut **tx, names).await?;
        let rows = tx.rows(names.statement(&sql!(READ)).bind(saga.as_uuid())).await?;
        rows.iter().map(|row| read(&row.get::<String>(0)?)).collect()
    }

    pub(super) async fn append_log(
        &self,
        tx: &mut Tx,
        saga: MessageId,
        after: usize,
        entry: &LogEntry,
    ) -> Result<(), Error> {
        let names = &self.store.inner.names;
        let now: Micros = queues::lock(&mut **tx, names).await?;
        let n = i64::try_from(after).unwrap_or(i64::MAX);
        let append =
            names.statement(&sql!(APPEND)).bind(saga.as_uuid()).bind(n).bind(now).bind(written(entry)?);
        tx.execute(append).await?;
        Ok(())
    }

    pub(super) async fn forget_log(&self, tx: &mut Tx, saga: MessageId) -> Result<(), Error> {
        tx.execute(self.store.inner.names.statement(&sql!(FORGET)).bind(saga.as_uuid())).await?;
        Ok(())
    }
}
