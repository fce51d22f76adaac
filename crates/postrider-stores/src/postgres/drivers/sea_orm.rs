//! Transactions of SeaORM on PostgreSQL.
//!
//! SeaORM does not give access to the underlying connection, and its values are owned: payloads are copied once more. Its arrays
//! cannot hold a null, so columns with nulls are sent as text in the form of an array, which the casts in the statement read. The
//! underlying connection keeps prepared statements by their text; ours carry a marker, so that other code that stages on the same
//! connection does not find one whose parameters have other types.

use super::Driver;
use crate::postgres::{
    PostgresInbox, PostgresOutbox,
    error::ErrorClass,
    statement::{Param, StageReply, Statement},
};
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Invalid, Message, Outbox, QueueName, StageReport,
    TimerName,
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
    async fn stage_all(
        &self,
        tx: &mut DatabaseTransaction,
        messages: &[Message],
    ) -> Result<StageReport, Error> {
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
        let done = self.execute_raw(owned(statement)).await.map_err(classify)?;
        Ok(done.rows_affected())
    }

    async fn fetch_replies(&mut self, statement: Statement<'_>) -> Result<Vec<StageReply>, Error> {
        let rows = self.query_all_raw(owned(statement)).await.map_err(classify)?;
        rows.iter().map(stage_reply).collect::<Result<_, _>>().map_err(classify)
    }
}

fn check_backend(tx: &DatabaseTransaction, trait_name: &str) -> Result<(), Invalid> {
    match tx.get_database_backend() {
        DbBackend::Postgres => Ok(()),
        other => Err(Invalid::rule(
            "transaction",
            format!("is one of {other:?}; this {trait_name} is in PostgreSQL"),
        )),
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

/// An array literal of PostgreSQL: `{"one",NULL,"t\"wo\""}`.
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

fn stage_reply(row: &QueryResult) -> Result<StageReply, DbErr> {
    let outcome: String = row.try_get_by_index(1)?;
    Ok(StageReply::new(row.try_get_by_index(0)?, &outcome, row.try_get_by_index(2)?))
}

/// Classifies an error.
fn classify(error: DbErr) -> Error {
    let next = match &error {
        DbErr::Conn(RuntimeErr::SqlxError(cause))
        | DbErr::Exec(RuntimeErr::SqlxError(cause))
        | DbErr::Query(RuntimeErr::SqlxError(cause)) => ErrorClass::of(cause),
        DbErr::Conn(_) | DbErr::ConnectionAcquire(_) => ErrorClass::Transient,
        _ => ErrorClass::Other,
    };
    next.into_error(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn array_literal_quotes_and_escapes_values() {
        let values = vec![Some("plain"), None, Some(""), Some("NULL"), Some("a,b {c} \"d\" \\e")];
        let expected = r#"{"plain",NULL,"","NULL","a,b {c} \"d\" \\e"}"#;
        assert_eq!(array(values), Value::from(expected));
        assert_eq!(array(Vec::<Option<f64>>::new()), Value::from("{}"));
    }
}
