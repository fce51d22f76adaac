//! Connections and transactions of sqlx. Statements are prepared once for each connection.

use super::{Cells, Driver, Failed};
use crate::sqlite::{
    SqliteInbox, SqliteOutbox,
    error::{is_busy, store_error},
    statement::{Param, Statement},
};
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Message, Outbox, QueueName, Staged, TimerName,
};
use sqlx::{
    Acquire, Decode, Row, Sqlite, SqliteConnection, Transaction, Type,
    query::Query,
    sqlite::{SqliteArguments, SqliteRow},
};
use std::borrow::Cow;

/// In a transaction of sqlx. The feature is `sqlite`.
///
/// Begin the transaction with `BEGIN IMMEDIATE` if it reads before it writes: SQLite cannot let it wait for others later.
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
    ) -> Result<Staged, Error> {
        if let Some(staged) = self.stage_at_once(&mut **tx, messages).await? {
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

/// In a transaction of sqlx. The feature is `sqlite`.
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

    async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, Failed> {
        Ok(bound(statement).execute(self).await?.rows_affected())
    }

    async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<SqliteRow>, Failed> {
        Ok(bound(statement).fetch_all(self).await?)
    }
}

impl Cells for SqliteRow {
    fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(&'r self, column: usize) -> Result<T, Error> {
        self.try_get(column).map_err(store_error)
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        Self { is_busy: is_busy(&error), error: store_error(error) }
    }
}

fn bound<'q>(Statement { sql, params }: Statement<'q>) -> Query<'q, Sqlite, SqliteArguments> {
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
