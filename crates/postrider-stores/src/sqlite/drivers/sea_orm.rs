//! Transactions of SeaORM on SQLite.
//!
//! SeaORM does not give access to the underlying connection, and its values are owned: borrowed parameters are copied once more. It
//! returns rows of the underlying sqlx.

use super::{Driver, DriverError, DriverRow};
use crate::sqlite::{
    SqliteInbox, SqliteOutbox,
    error::{classify, is_busy},
    statement::{Param, Statement},
};
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Invalid, Message, Outbox, QueueName, StageReport,
    TimerName,
};
use sea_orm::{
    ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr, TransactionTrait, Value,
};
use sqlx::{Decode, Sqlite, Type};

/// Stages in a SeaORM transaction on SQLite (features `sea-orm` and `sqlite`).
///
/// Begin the transaction with `SqliteTransactionMode::Immediate` if it reads before it writes: otherwise SQLite cannot wait for other
/// writers.
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
    async fn stage_all(
        &self,
        tx: &mut DatabaseTransaction,
        messages: &[Message],
    ) -> Result<StageReport, Error> {
        check(tx, "outbox")?;
        if let Some(staged) = self.stage_in_one_statement(tx, messages).await? {
            return Ok(staged);
        }
        let mut savepoint = tx.begin().await.map_err(DriverError::from)?;
        let staged = self.stage_on(&mut savepoint, messages).await?;
        savepoint.commit().await.map_err(DriverError::from)?;
        Ok(staged)
    }

    async fn cancel_timer(
        &self,
        tx: &mut DatabaseTransaction,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        check(tx, "outbox")?;
        let mut savepoint = tx.begin().await.map_err(DriverError::from)?;
        let cancelled = self.cancel_on(&mut savepoint, queue, timer).await?;
        savepoint.commit().await.map_err(DriverError::from)?;
        Ok(cancelled)
    }
}

/// Admits in a SeaORM transaction on SQLite (features `sea-orm` and `sqlite`).
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

fn check(tx: &DatabaseTransaction, part: &str) -> Result<(), Invalid> {
    match tx.get_database_backend() {
        DbBackend::Sqlite => Ok(()),
        other => Err(Invalid::rule("transaction", format!("is one of {other:?}; this {part} is in SQLite"))),
    }
}

impl Driver for DatabaseTransaction {
    type Row = QueryResult;

    async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, DriverError> {
        Ok(self.execute_raw(to_sea_orm(statement)).await?.rows_affected())
    }

    async fn rows(&mut self, statement: Statement<'_>) -> Result<Vec<QueryResult>, DriverError> {
        Ok(self.query_all_raw(to_sea_orm(statement)).await?)
    }
}

impl DriverRow for QueryResult {
    fn get<'r, T: Decode<'r, Sqlite> + Type<Sqlite>>(&'r self, column: usize) -> Result<T, Error> {
        match self.try_as_sqlite_row() {
            Some(row) => row.get(column),
            None => Err(Error::Other("SeaORM returned a row of another database".into())),
        }
    }
}

impl From<DbErr> for DriverError {
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
        Self { is_busy: is_busy(&cause), error: classify(&cause, error) }
    }
}

fn to_sea_orm(Statement { sql, params }: Statement<'_>) -> sea_orm::Statement {
    let values = params.into_iter().map(|param| match param {
        Param::Null => Value::BigInt(None),
        Param::Integer(value) => value.into(),
        Param::Text(value) => value.into_owned().into(),
        Param::Blob(value) => value.into_owned().into(),
        Param::Id(value) => value.as_bytes().to_vec().into(),
    });
    sea_orm::Statement::from_sql_and_values(DbBackend::Sqlite, sql.as_str(), values.collect::<Vec<_>>())
}
