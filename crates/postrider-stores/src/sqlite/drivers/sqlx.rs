//! Connections and transactions of sqlx. A statement is prepared once for each connection.

use super::{Driver, DriverError, DriverRow};
use crate::sqlite::{
    SqliteInbox, SqliteOutbox,
    error::{is_busy, store_error},
    statement::{Param, Statement},
};
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Message, Outbox, QueueName, StageReport, TimerName,
};
use sqlx::{
    Acquire, Decode, Row, Sqlite, SqliteConnection, Transaction, Type,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};
use std::borrow::Cow;

/// Stages in an sqlx transaction (feature `sqlite`).
///
/// Begin the transaction with `BEGIN IMMEDIATE` if it reads before it writes: otherwise SQLite cannot wait for other writers.
///
/// ```no_run
/// use postrider_core::{Message, OutboxExt};
/// use postrider_stores::sqlite::SqliteOutbox;
///
/// # async fn run(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = SqliteOutbox::default();
/// let mut tx = pool.begin_with("begin immediate").await?;
/// sqlx::query("insert into orders (id) values (17)").execute(&mut *tx).await?;
/// outbox.stage(&mut tx, Message::builder("orders").json(&17)).await?;
/// tx.commit().await?; // both, or neither
/// # Ok(()) }
/// ```
impl<'t> Outbox<Transaction<'t, Sqlite>> for SqliteOutbox {
    async fn stage_all(
        &self,
        tx: &mut Transaction<'t, Sqlite>,
        messages: &[Message],
    ) -> Result<StageReport, Error> {
        if let Some(staged) = self.stage_in_one_statement(&mut **tx, messages).await? {
            return Ok(staged);
        }
        let mut savepoint = tx.begin().await.map_err(store_error)?;
        let staged = self.stage_on(&mut *savepoint, messages).await?;
        savepoint.commit().await.map_err(store_error)?;
        Ok(staged)
    }

    async fn cancel_timer(
        &self,
        tx: &mut Transaction<'t, Sqlite>,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        let mut savepoint = tx.begin().await.map_err(store_error)?;
        let cancelled = self.cancel_on(&mut *savepoint, queue, timer).await?;
        savepoint.commit().await.map_err(store_error)?;
        Ok(cancelled)
    }
}

/// Admits in an sqlx transaction (feature `sqlite`).
impl<'t> Inbox<Transaction<'t, Sqlite>> for SqliteInbox {
    async fn admit_all(
        &self,
        tx: &mut Transaction<'t, Sqlite>,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        self.admit_on(&mut **tx, consumer, arrivals).await
    }
}

impl Driver for SqliteConnection {
    type Row = SqliteRow;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, DriverError> {
        Ok(bind_params(statement).execute(self).await?.rows_affected())
    }

    async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<SqliteRow>, DriverError> {
        Ok(bind_params(statement).fetch_all(self).await?)
    }
}

impl DriverRow for SqliteRow {
    fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(&'r self, column: usize) -> Result<T, Error> {
        self.try_get(column).map_err(store_error)
    }
}

impl From<sqlx::Error> for DriverError {
    fn from(error: sqlx::Error) -> Self {
        Self { is_busy: is_busy(&error), error: store_error(error) }
    }
}

fn bind_params<'q>(Statement { sql, params }: Statement<'q>) -> Query<'q, Sqlite, SqliteArguments> {
    params.into_iter().fold(sql.query(), |query, param| match param {
        Param::Null => query.bind(None::<i64>),
        Param::Integer(value) => query.bind(value),
        Param::Text(Cow::Borrowed(value)) => query.bind(value),
        Param::Text(Cow::Owned(value)) => query.bind(value),
        Param::Blob(Cow::Borrowed(value)) => query.bind(value),
        Param::Blob(Cow::Owned(value)) => query.bind(value),
        Param::Id(value) => query.bind(value),
    })
}
