//! Transactions of SeaORM on SQLite.
//!
//! SeaORM lends nobody the connection below, and its values are owned: what is borrowed is copied once more on the way. What it
//! answers with are the rows of the sqlx below.

use super::{Cells, Driver, Failed};
use crate::sqlite::{
    SqliteInbox, SqliteOutbox,
    error::{is_busy, sorted},
    statement::{Param, Statement},
};
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Invalid, Message, Outbox, QueueName, Staged, TimerName,
};
use sea_orm::{
    ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr, TransactionTrait, Value,
};
use sqlx::{Decode, Sqlite, Type};

/// In a transaction of SeaORM on SQLite. The feature is `sea-orm`, beside `sqlite`.
///
/// Begin the transaction with `SqliteTransactionMode::Immediate` if it reads before it writes: SQLite cannot let it wait for
/// others later.
///
/// ```no_run
/// use postrider_core::{Message, OutboxExt};
/// use postrider_stores::sqlite::SqliteOutbox;
/// use sea_orm::{ConnectionTrait, DatabaseConnection, SqliteTransactionMode, TransactionOptions, TransactionTrait};
///
/// # async fn run(database: DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = SqliteOutbox::default();
/// let immediate = TransactionOptions {
///     sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
///     ..Default::default()
/// };
/// let mut tx = database.begin_with_options(immediate).await?;
/// tx.execute_unprepared("insert into orders (id) values (17)").await?;
/// outbox.stage(&mut tx, Message::builder("orders").json(&17)).await?;
/// tx.commit().await?; // both, or neither
/// # Ok(()) }
/// ```
impl Outbox<DatabaseTransaction> for SqliteOutbox {
    async fn stage_all(&self, tx: &mut DatabaseTransaction, messages: &[Message]) -> Result<Staged, Error> {
        check(tx, "outbox")?;
        if let Some(staged) = self.stage_at_once(tx, messages).await? {
            return Ok(staged);
        }
        let mut savepoint = tx.begin().await.map_err(Failed::from)?;
        let staged = self.stage_on(&mut savepoint, messages).await?;
        savepoint.commit().await.map_err(Failed::from)?;
        Ok(staged)
    }

    async fn cancel_timer(
        &self,
        tx: &mut DatabaseTransaction,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        check(tx, "outbox")?;
        let mut savepoint = tx.begin().await.map_err(Failed::from)?;
        let cancelled = self.cancel_on(&mut savepoint, queue, timer).await?;
        savepoint.commit().await.map_err(Failed::from)?;
        Ok(cancelled)
    }
}

/// In a transaction of SeaORM on SQLite. The feature is `sea-orm`, beside `sqlite`.
impl Inbox<DatabaseTransaction> for SqliteInbox {
    async fn admit_all(
        &self,
        tx: &mut DatabaseTransaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        check(tx, "inbox")?;
        self.admit_on(tx, consumer, arrivals).await
    }
}

fn check(tx: &DatabaseTransaction, room: &str) -> Result<(), Invalid> {
    match tx.get_database_backend() {
        DbBackend::Sqlite => Ok(()),
        other => Err(Invalid::rule("transaction", format!("is one of {other:?}; this {room} is in SQLite"))),
    }
}

impl Driver for DatabaseTransaction {
    type Row = QueryResult;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, Failed> {
        Ok(self.execute_raw(owned(statement)).await?.rows_affected())
    }

    async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<QueryResult>, Failed> {
        Ok(self.query_all_raw(owned(statement)).await?)
    }
}

impl Cells for QueryResult {
    fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(&'r self, column: usize) -> Result<T, Error> {
        match self.try_as_sqlite_row() {
            Some(row) => row.get(column),
            None => Err(Error::Other("SeaORM answered with a row that is not SQLite's".into())),
        }
    }
}

impl From<DbErr> for Failed {
    fn from(error: DbErr) -> Self {
        let cause = match &error {
            DbErr::Conn(RuntimeErr::SqlxError(cause))
            | DbErr::Exec(RuntimeErr::SqlxError(cause))
            | DbErr::Query(RuntimeErr::SqlxError(cause)) => cause.clone(),
            DbErr::Conn(_) | DbErr::ConnectionAcquire(_) => {
                return Self { error: Error::Unavailable(Box::new(error)), is_busy: false };
            }
            _ => return Self { error: Error::Other(Box::new(error)), is_busy: false },
        };
        Self { is_busy: is_busy(&cause), error: sorted(&cause, error) }
    }
}

fn owned(Statement { sql, params }: Statement<'_>) -> sea_orm::Statement {
    let values = params.into_iter().map(|param| match param {
        Param::Null => Value::BigInt(None),
        Param::Integer(value) => value.into(),
        Param::Text(value) => value.into_owned().into(),
        Param::Blob(value) => value.into_owned().into(),
        Param::Id(value) => value.as_bytes().to_vec().into(),
    });
    sea_orm::Statement::from_sql_and_values(DbBackend::Sqlite, sql.as_str(), values.collect::<Vec<_>>())
}
