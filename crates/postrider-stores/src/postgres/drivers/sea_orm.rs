//! Transactions of SeaORM on PostgreSQL.
//!
//! SeaORM lends nobody the connection below, and its values are owned: payloads are copied on the way. Its arrays cannot hold
//! a null, so columns with nulls travel as text in the form of an array, which the casts in the statement read. The
//! connection below keeps prepared statements by their text; ours is marked, so that nobody else who stages on the
//! same connection finds one whose parameters have other types.

use super::Driver;
use crate::postgres::{
    PostgresInbox, PostgresOutbox,
    error::Next,
    statement::{Answer, Param, Statement},
};
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Invalid, Message, Outbox, QueueName, Staged, TimerName,
};
use sea_orm::{ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr, Value};
use std::fmt::Display;

/// In a transaction of SeaORM on PostgreSQL. The feature is `sea-orm`.
///
/// ```no_run
/// use postrider_core::{Message, OutboxExt};
/// use postrider_stores::postgres::PostgresOutbox;
/// use sea_orm::{ConnectionTrait, DatabaseConnection, TransactionTrait};
///
/// # async fn run(database: DatabaseConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = PostgresOutbox::default();
/// let mut tx = database.begin().await?;
/// tx.execute_unprepared("insert into orders (id) values (17)").await?;
/// outbox.stage(&mut tx, Message::builder("orders").json(&17)).await?;
/// tx.commit().await?; // both, or neither
/// # Ok(()) }
/// ```
impl Outbox<DatabaseTransaction> for PostgresOutbox {
    async fn stage_all(&self, tx: &mut DatabaseTransaction, messages: &[Message]) -> Result<Staged, Error> {
        check_backend(tx, "outbox")?;
        self.stage_on(tx, messages).await
    }

    async fn cancel_timer(
        &self,
        tx: &mut DatabaseTransaction,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        check_backend(tx, "outbox")?;
        self.cancel_on(tx, queue, timer).await
    }
}

/// In a transaction of SeaORM on PostgreSQL. The feature is `sea-orm`.
impl Inbox<DatabaseTransaction> for PostgresInbox {
    async fn admit_all(
        &self,
        tx: &mut DatabaseTransaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        check_backend(tx, "inbox")?;
        self.admit_on(tx, consumer, arrivals).await
    }
}

impl Driver for DatabaseTransaction {
    async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, Error> {
        let done = self.execute_raw(owned(statement)).await.map_err(sorted)?;
        Ok(done.rows_affected())
    }

    async fn answers(&mut self, statement: Statement<'_>) -> Result<Vec<Answer>, Error> {
        let rows = self.query_all_raw(owned(statement)).await.map_err(sorted)?;
        rows.iter().map(answer).collect::<Result<_, _>>().map_err(sorted)
    }
}

fn check_backend(tx: &DatabaseTransaction, room: &str) -> Result<(), Invalid> {
    match tx.get_database_backend() {
        DbBackend::Postgres => Ok(()),
        other => {
            Err(Invalid::rule("transaction", format!("is one of {other:?}; this {room} is in PostgreSQL")))
        }
    }
}

fn owned(Statement { sql, params }: Statement<'_>) -> sea_orm::Statement {
    let values = params.into_iter().map(|param| match param {
        Param::Name(value) => value.into(),
        Param::Names(values) => values.into_iter().map(str::to_owned).collect::<Vec<_>>().into(),
        Param::Texts(values) => array(values),
        Param::Positions(values) => values.into(),
        Param::Ids(values) => values.into(),
        Param::Flags(values) => values.into(),
        Param::Seconds(values) => array(values),
        Param::Moments(values) => array(values),
        Param::Payloads(values) => values.into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>().into(),
    });
    let text = format!("{} /* sea-orm */", sql.as_str());
    sea_orm::Statement::from_sql_and_values(DbBackend::Postgres, text, values.collect::<Vec<Value>>())
}

/// An array as PostgreSQL writes it: `{"one",NULL,"t\"wo\""}`.
fn array<T: Display>(values: Vec<Option<T>>) -> Value {
    let mut text = String::from("{");
    for (index, value) in values.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        match value {
            None => text.push_str("NULL"),
            Some(value) => {
                text.push('"');
                for character in value.to_string().chars() {
                    if matches!(character, '"' | '\\') {
                        text.push('\\');
                    }
                    text.push(character);
                }
                text.push('"');
            }
        }
    }
    text.push('}');
    text.into()
}

fn answer(row: &QueryResult) -> Result<Answer, DbErr> {
    let fate: String = row.try_get_by_index(1)?;
    Ok(Answer::new(row.try_get_by_index(0)?, &fate, row.try_get_by_index(2)?))
}

/// Sorts an error by what the caller can do next.
fn sorted(error: DbErr) -> Error {
    let next = match &error {
        DbErr::Conn(RuntimeErr::SqlxError(cause))
        | DbErr::Exec(RuntimeErr::SqlxError(cause))
        | DbErr::Query(RuntimeErr::SqlxError(cause)) => Next::after(cause),
        DbErr::Conn(_) | DbErr::ConnectionAcquire(_) => Next::TryAgain,
        _ => Next::Nothing,
    };
    next.error(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_written_as_postgresql_reads_them() {
        let values = vec![Some("plain"), None, Some(""), Some("NULL"), Some("a,b {c} \"d\" \\e")];
        let expected = r#"{"plain",NULL,"","NULL","a,b {c} \"d\" \\e"}"#;
        assert_eq!(array(values), Value::from(expected));
        assert_eq!(array(Vec::<Option<f64>>::new()), Value::from("{}"));
    }
}
