//! The logs of running sagas.

use super::{PostgresTransactions, error::store_error};
use postrider_core::{
    Error, MessageId,
    saga::{LogEntry, read, written},
};
use sqlx::{Postgres, Row, Transaction};

type Tx = Transaction<'static, Postgres>;

/// In a statement of its own, so that the next one sees what the previous holder of the lock has committed.
const LOCK: &str = "select pg_advisory_xact_lock(hashtextextended($1 collate \"C\", 1))";
const READ: &str = "select l.body from {saga_log} l where l.saga = $1 order by l.n";
const APPEND: &str = "insert into {saga_log} (saga, n, body) values ($1, $2, $3)";
const DELETE: &str = "delete from {saga_log} l where l.saga = $1";

impl PostgresTransactions {
    pub(super) async fn read_log(&self, tx: &mut Tx, saga: MessageId) -> Result<Vec<LogEntry>, Error> {
        let names = &self.store.inner.names;
        let lock = [names.schema(), names.prefix(), &saga.to_string()].join("\u{1f}");
        self.sql(&sql!(LOCK)).query().bind(lock).execute(&mut **tx).await.map_err(store_error)?;
        let rows = self.sql(&sql!(READ)).query().bind(saga.as_uuid()).fetch_all(&mut **tx).await;
        let bodies = rows.map_err(store_error)?.into_iter().map(|row| row.try_get::<String, _>(0));
        bodies.map(|body| read(&body.map_err(store_error)?)).collect()
    }

    pub(super) async fn append_log(
        &self,
        tx: &mut Tx,
        saga: MessageId,
        after: usize,
        entry: &LogEntry,
    ) -> Result<(), Error> {
        let sql = self.sql(&sql!(APPEND));
        let n = i32::try_from(after).unwrap_or(i32::MAX);
        let query = sql.query().bind(saga.as_uuid()).bind(n).bind(written(entry)?);
        query.execute(&mut **tx).await.map_err(store_error)?;
        Ok(())
    }

    pub(super) async fn forget_log(&self, tx: &mut Tx, saga: MessageId) -> Result<(), Error> {
        self.sql(&sql!(DELETE)).query().bind(saga.as_uuid()).execute(&mut **tx).await.map_err(store_error)?;
        Ok(())
    }
}
