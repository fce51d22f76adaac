//! Transactions of tokio-postgres, and of the pools that lend them.
//!
//! The driver keeps no prepared statements, and to prepare one costs a round trip. So the statement is sent whole, with the
//! types of its parameters, and is parsed, bound and run in one. A plain insert goes through a function of the database, which
//! keeps the plan. We keep no prepared statements of our own: connections cannot be told apart, and a statement that was
//! deallocated, or that a pooler left on another server, would break the caller's transaction.

use super::Driver;
use crate::postgres::{
    PostgresInbox, PostgresOutbox,
    error::ErrorClass,
    statement::{Param, StageReply, Statement},
};
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Message, Outbox, QueueName, StageReport, TimerName,
};
use tokio_postgres::{
    Row, Transaction,
    types::{ToSql, Type},
};

/// In a transaction of tokio-postgres. The feature is `tokio-postgres`. A transaction of deadpool-postgres wraps
/// one: stage in `&mut *tx`.
///
/// ```no_run
/// use postrider_core::{Message, OutboxExt};
/// use postrider_stores::postgres::PostgresOutbox;
///
/// # async fn run(client: &mut tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = PostgresOutbox::default();
/// let mut tx = client.transaction().await?;
/// tx.execute("insert into orders (id) values (17)", &[]).await?;
/// outbox.stage(&mut tx, Message::builder("orders").json(&17)).await?;
/// tx.commit().await?; // both, or neither
/// # Ok(()) }
/// ```
impl<'t> Outbox<Transaction<'t>> for PostgresOutbox {
    async fn stage_all(&self, tx: &mut Transaction<'t>, messages: &[Message]) -> Result<StageReport, Error> {
        self.stage_on(tx, messages).await
    }

    async fn cancel_timer(
        &self,
        tx: &mut Transaction<'t>,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        self.cancel_on(tx, queue, timer).await
    }
}

/// In a transaction of tokio-postgres. The feature is `tokio-postgres`.
impl<'t> Inbox<Transaction<'t>> for PostgresInbox {
    async fn admit_all(
        &self,
        tx: &mut Transaction<'t>,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        self.admit_on(tx, consumer, arrivals).await
    }
}

impl Driver for Transaction<'_> {
    const KEEPS_PLANS: bool = false;

    async fn execute(&mut self, Statement { sql, params }: Statement<'_>) -> Result<u64, Error> {
        self.execute_typed(sql.as_str(), &typed(&params)).await.map_err(classify)
    }

    async fn fetch_replies(
        &mut self,
        Statement { sql, params }: Statement<'_>,
    ) -> Result<Vec<StageReply>, Error> {
        let rows = self.query_typed(sql.as_str(), &typed(&params)).await.map_err(classify)?;
        rows.iter().map(stage_reply).collect::<Result<_, _>>().map_err(classify)
    }
}

fn typed<'p>(params: &'p [Param<'_>]) -> Vec<(&'p (dyn ToSql + Sync), Type)> {
    let typed = params.iter().map(|param| -> (&(dyn ToSql + Sync), _) {
        match param {
            Param::Name(value) => (value, Type::TEXT),
            Param::Names(values) => (values, Type::TEXT_ARRAY),
            Param::Texts(values) => (values, Type::TEXT_ARRAY),
            Param::Positions(values) => (values, Type::INT2_ARRAY),
            Param::Ids(values) => (values, Type::UUID_ARRAY),
            Param::Flags(values) => (values, Type::BOOL_ARRAY),
            Param::Seconds(values) => (values, Type::FLOAT8_ARRAY),
            Param::Moments(values) => (values, Type::TIMESTAMPTZ_ARRAY),
            Param::Payloads(values) => (values, Type::BYTEA_ARRAY),
        }
    });
    typed.collect()
}

fn stage_reply(row: &Row) -> Result<StageReply, tokio_postgres::Error> {
    Ok(StageReply::new(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}

/// Classifies an error. One without a code never reached the server, or its reply was lost.
fn classify(error: tokio_postgres::Error) -> Error {
    use std::error::Error as _;
    let lost = error.is_closed()
        || error.source().and_then(|source| source.downcast_ref::<std::io::Error>()).is_some();
    let next = match error.as_db_error() {
        Some(error) => ErrorClass::by_code(error.code().code(), error.message()),
        None if lost => ErrorClass::Transient,
        None => ErrorClass::Other,
    };
    next.into_error(error)
}
