//! Transactions of sqlx. Statements are prepared once for each connection.

use super::Driver;
use crate::postgres::{
    PostgresInbox, PostgresOutbox,
    error::store_error,
    names::Sql,
    statement::{Param, StageReply, Statement},
};
use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Message, Outbox, QueueName, StageReport, TimerName,
};
use sqlx::{
    Postgres, Row, Transaction,
    postgres::{PgArguments, PgRow},
    query::Query,
};

/// In a transaction of sqlx. The feature is `postgres`.
///
/// ```no_run
/// use postrider_core::{Message, OutboxExt};
/// use postrider_stores::postgres::PostgresOutbox;
///
/// # async fn run(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = PostgresOutbox::default();
/// let mut tx = pool.begin().await?;
/// sqlx::query("insert into orders (id) values (17)").execute(&mut *tx).await?;
/// outbox.stage(&mut tx, Message::builder("orders").json(&17)).await?;
/// tx.commit().await?; // both, or neither
/// # Ok(()) }
/// ```
impl<'t> Outbox<Transaction<'t, Postgres>> for PostgresOutbox {
    async fn stage_all(
        &self,
        tx: &mut Transaction<'t, Postgres>,
        messages: &[Message],
    ) -> Result<StageReport, Error> {
        self.stage_on(tx, messages).await
    }

    async fn cancel_timer(
        &self,
        tx: &mut Transaction<'t, Postgres>,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        self.cancel_on(tx, queue, timer).await
    }
}

/// In a transaction of sqlx. The feature is `postgres`.
impl<'t> Inbox<Transaction<'t, Postgres>> for PostgresInbox {
    async fn admit_all(
        &self,
        tx: &mut Transaction<'t, Postgres>,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        self.admit_on(tx, consumer, arrivals).await
    }
}

impl Driver for Transaction<'_, Postgres> {
    async fn execute(&mut self, Statement { sql, params }: Statement<'_>) -> Result<u64, Error> {
        let done = bound(&sql, params).execute(&mut **self).await.map_err(store_error)?;
        Ok(done.rows_affected())
    }

    async fn fetch_replies(
        &mut self,
        Statement { sql, params }: Statement<'_>,
    ) -> Result<Vec<StageReply>, Error> {
        let rows = bound(&sql, params).fetch_all(&mut **self).await.map_err(store_error)?;
        rows.iter().map(stage_reply).collect::<Result<_, _>>().map_err(store_error)
    }
}

fn bound<'s>(sql: &'s Sql, params: Vec<Param<'s>>) -> Query<'s, Postgres, PgArguments> {
    params.into_iter().fold(sql.query(), |query, param| match param {
        Param::Name(value) => query.bind(value),
        Param::Names(values) => query.bind(values),
        Param::Texts(values) => query.bind(values),
        Param::Positions(values) => query.bind(values),
        Param::Ids(values) => query.bind(values),
        Param::Flags(values) => query.bind(values),
        Param::Seconds(values) => query.bind(values),
        Param::Moments(values) => query.bind(values),
        Param::Payloads(values) => query.bind(values),
    })
}

fn stage_reply(row: &PgRow) -> Result<StageReply, sqlx::Error> {
    Ok(StageReply::new(row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
}
