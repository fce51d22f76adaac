//! Connections of diesel-async that are inside a transaction.
//!
//! Diesel has no type for a transaction: `connection.transaction(…)` passes the connection itself to its closure. So the code checks
//! the connection for an open transaction, and refuses to stage or admit outside of one: the message would commit at once, whatever
//! becomes of the change that it belongs to.
//!
//! Diesel never keeps an `sql_query` as a prepared statement, so the statements here are a query type of our own, which it keeps.

use super::Driver;
use crate::postgres::{
    PostgresInbox, PostgresOutbox,
    error::ErrorClass,
    statement::{Param, StageReply, Statement},
};
use diesel::{
    QueryResult,
    pg::Pg,
    query_builder::{AstPass, Query, QueryFragment, QueryId},
    result::{DatabaseErrorKind, Error as DieselError},
    sql_types::{
        Array, Binary, Bool, Double, Integer, Nullable, SmallInt, Text, Timestamptz, Uuid as UuidType,
    },
};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, TransactionManager};
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Invalid, Message, Outbox, QueueName, StageReport,
    TimerName,
};
use uuid::Uuid;

/// On a connection of diesel-async, inside its `transaction`. The feature is `diesel-async`. Outside of a transaction staging
/// is refused, and the error names the field `transaction`. In a closure that is given a pooled connection, stage in
/// `&mut **connection`.
///
/// ```no_run
/// use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
/// use postrider_core::{Message, OutboxExt};
/// use postrider_stores::postgres::PostgresOutbox;
///
/// # async fn run(connection: &mut AsyncPgConnection) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let outbox = PostgresOutbox::default();
/// connection
///     .transaction(async |tx| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///         diesel::sql_query("insert into orders (id) values (17)").execute(tx).await?;
///         outbox.stage(tx, Message::builder("orders").json(&17)).await?;
///         Ok(()) // both; after an error neither
///     })
///     .await?;
/// # Ok(()) }
/// ```
impl Outbox<AsyncPgConnection> for PostgresOutbox {
    async fn stage_all(
        &self,
        tx: &mut AsyncPgConnection,
        messages: &[Message],
    ) -> Result<StageReport, Error> {
        check_transaction(tx)?;
        self.stage_on(tx, messages).await
    }

    async fn cancel_timer(
        &self,
        tx: &mut AsyncPgConnection,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        check_transaction(tx)?;
        self.cancel_on(tx, queue, timer).await
    }
}

/// On a connection of diesel-async, inside its `transaction`. The feature is `diesel-async`. Outside of a transaction nothing is admitted,
/// and the error names the field `transaction`.
impl Inbox<AsyncPgConnection> for PostgresInbox {
    async fn admit_all(
        &self,
        tx: &mut AsyncPgConnection,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        check_transaction(tx)?;
        self.admit_on(tx, consumer, arrivals).await
    }
}

impl Driver for AsyncPgConnection {
    async fn execute(&mut self, statement: Statement<'_>) -> Result<u64, Error> {
        let rows = RunQueryDsl::execute(Prepared(statement), self).await.map_err(classify)?;
        Ok(rows as u64)
    }

    async fn fetch_replies(&mut self, statement: Statement<'_>) -> Result<Vec<StageReply>, Error> {
        let rows: Vec<(i32, String, Uuid)> =
            RunQueryDsl::load(Prepared(statement), self).await.map_err(classify)?;
        Ok(rows.into_iter().map(|(position, outcome, id)| StageReply::new(position, &outcome, id)).collect())
    }
}

fn check_transaction(connection: &mut AsyncPgConnection) -> Result<(), Error> {
    type Manager = <AsyncPgConnection as AsyncConnection>::TransactionManager;
    let status = Manager::transaction_manager_status_mut(connection);
    if status.transaction_depth().map_err(classify)?.is_none() {
        let rule =
            "is not open: stage and admit inside connection.transaction(…), or it would outlive a rollback";
        return Err(Invalid::rule("transaction", rule).into());
    }
    Ok(())
}

/// A statement that diesel prepares once for each connection, by its text.
struct Prepared<'m>(Statement<'m>);

impl QueryFragment<Pg> for Prepared<'_> {
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let Statement { sql, params } = &self.0;
        let mut rest = sql.as_str();
        for (index, param) in params.iter().enumerate() {
            // Diesel writes the placeholder where a parameter is bound, and each is bound where it appears first.
            if let Some((before, after)) = rest.split_once(&format!("${}", index + 1)) {
                pass.push_sql(before);
                rest = after;
            }
            match param {
                Param::Name(value) => pass.push_bind_param::<Text, _>(value)?,
                Param::Names(values) => pass.push_bind_param::<Array<Text>, _>(values)?,
                Param::Texts(values) => pass.push_bind_param::<Array<Nullable<Text>>, _>(values)?,
                Param::Positions(values) => pass.push_bind_param::<Array<SmallInt>, _>(values)?,
                Param::Ids(values) => pass.push_bind_param::<Array<UuidType>, _>(values)?,
                Param::Flags(values) => pass.push_bind_param::<Array<Bool>, _>(values)?,
                Param::Seconds(values) => pass.push_bind_param::<Array<Nullable<Double>>, _>(values)?,
                Param::Moments(values) => pass.push_bind_param::<Array<Nullable<Timestamptz>>, _>(values)?,
                Param::Payloads(values) => pass.push_bind_param::<Array<Binary>, _>(values)?,
            }
        }
        pass.push_sql(rest);
        Ok(())
    }
}

impl QueryId for Prepared<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for Prepared<'_> {
    type SqlType = (Integer, Text, UuidType);
}

/// Classifies an error. Diesel hides the server's code, and exposes some kinds.
fn classify(error: DieselError) -> Error {
    use DatabaseErrorKind as K;
    let next = match &error {
        DieselError::DatabaseError(
            K::UnableToSendCommand | K::ClosedConnection | K::SerializationFailure | K::ReadOnlyTransaction,
            _,
        ) => ErrorClass::Transient,
        // A missing table, function or column has no kind of its own; English server messages name it.
        DieselError::DatabaseError(_, error) if error.message().ends_with("does not exist") => {
            ErrorClass::SchemaMismatch(error.message().to_owned())
        }
        _ => ErrorClass::Other,
    };
    next.into_error(error)
}
