//! The shop on PostgreSQL.

use crate::{
    orders::{Booking, Journal, parcels, usual},
    shop::{Ending, Shop},
};
use postrider_core::{BoxError, Event, Message, Outbox, schema::Schema};
use postrider_engine::{Context, Queue, Tx, Worker, WorkerBuilder};
use postrider_stores::postgres::{PostgresOptions, PostgresStore, guard};
use postrider_testkit::{History, postgres::TestDatabase};
use sqlx::{Executor, PgPool, Postgres, Transaction, postgres::PgPoolOptions};
use std::time::Duration;
use uuid::Uuid;

#[derive(Debug, Clone)]
pub(crate) struct PostgresShop {
    pub(crate) store: PostgresStore,
    /// The application's own pool.
    pub(crate) app: PgPool,
}

impl PostgresShop {
    /// A shop in a database of its own.
    pub(crate) async fn fresh() -> (Self, TestDatabase) {
        let database = TestDatabase::empty().await;
        Self::open(database.url()).await.build().await;
        // Opened again, because settings of a database apply to new sessions.
        (Self::open(database.url()).await, database)
    }

    pub(crate) async fn with(options: PostgresOptions, app: PgPool) -> Self {
        Self { store: PostgresStore::open(options.with_connections(3)).await.unwrap(), app }
    }

    /// How many messages have a lease that has not expired.
    pub(crate) async fn leased(&self) -> i64 {
        // A row that waits for a retry has a time, and no token.
        let leased = "select count(*) from postrider.ready where lease_until > clock_timestamp() and token is not null";
        self.count(leased).await
    }

    async fn ids(&self, sql: &'static str) -> Vec<Uuid> {
        sqlx::query_scalar(sql).persistent(false).fetch_all(&self.app).await.unwrap()
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).persistent(false).fetch_one(&self.app).await.unwrap()
    }
}

impl Shop for PostgresShop {
    async fn open(address: &str) -> Self {
        let app = guard(PgPoolOptions::new().max_connections(10)).connect(address).await.unwrap();
        Self::with(PostgresOptions::new(address).unwrap(), app).await
    }

    async fn build(&self) {
        self.store.migrate().await.unwrap();
        // No constraint: violations must be visible.
        let tables = "create table witness (id uuid, doomed bool); create table effect (id uuid); \
                      create table report (lost bigint)";
        self.app.execute(tables).await.unwrap();
        // A process that freezes in a transaction locks its message until the server ends the session.
        let patience = "do $$ begin execute format('alter database %I set idle_in_transaction_session_timeout = 3000', \
                        current_database()); end $$";
        self.app.execute(patience).await.unwrap();
    }

    fn worker(&self, journal: Journal, lease_for: Duration) -> WorkerBuilder {
        let book = |booking: Booking, mut tx: Tx<Transaction<'static, Postgres>>, context: Context| async move {
            // Before it can fail, so that a failure has something to roll back.
            sqlx::query("insert into effect values ($1)")
                .bind(context.id().as_uuid())
                .persistent(false)
                .execute(&mut **tx)
                .await?;
            booking.expected().result(context.attempt())
        };
        let transactions = self.store.transactions(self.app.clone());
        let bookings = Queue::new(Booking::QUEUE).on_in_transaction(&transactions, book);
        Worker::builder(self.store.clone())
            .queue(parcels(journal, lease_for))
            .queue(usual(bookings, lease_for))
    }

    async fn produce(&self, messages: &[Message], doomed: &[bool], ending: Ending) -> Result<(), BoxError> {
        let mut tx = self.app.begin().await?;
        let staged = self.store.outbox().stage_all(&mut tx, messages).await?;
        let ids: Vec<Uuid> = staged.outcomes().iter().map(|(id, _)| id.as_uuid()).collect();
        sqlx::query("insert into witness select * from unnest($1::uuid[], $2::bool[])")
            .bind(&ids)
            .bind(doomed)
            .persistent(false)
            .execute(&mut *tx)
            .await?;
        match ending {
            Ending::Commit => tx.commit().await?,
            Ending::Rollback => tx.rollback().await?,
        }
        Ok(())
    }

    async fn left(&self) -> i64 {
        self.count(
            "select (select count(*) from postrider.ready) + (select count(*) from postrider.scheduled)",
        )
        .await
    }

    async fn history(&self) -> History {
        let witness: Vec<(Uuid, bool)> =
            sqlx::query_as("select id, doomed from witness").fetch_all(&self.app).await.unwrap();
        History {
            witness: witness.into_iter().collect(),
            effects: self.ids("select id from effect").await,
            dead: self.ids("select message_id from postrider.dead").await,
            waiting: self
                .ids(
                    "select message_id from postrider.ready union all select message_id from postrider.scheduled",
                )
                .await,
            ..History::default()
        }
    }

    async fn report(&self, lost: u64) {
        let insert = sqlx::query("insert into report values ($1)").bind(i64::try_from(lost).unwrap());
        insert.execute(&self.app).await.unwrap();
    }
}
