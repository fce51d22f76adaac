//! The shop on SQLite: its address is a file.

use crate::{
    orders::{Booking, Journal, parcels, usual},
    shop::{Ending, Shop},
};
use postrider_core::{BoxError, Event, Message, Outbox, schema::Schema};
use postrider_engine::{Context, Queue, Tx, Worker, WorkerBuilder};
use postrider_stores::sqlite::{Durability, SqliteOptions, SqliteStore};
use postrider_testkit::History;
use sqlx::{
    Executor, Sqlite, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};
use std::time::Duration;
use uuid::Uuid;

#[derive(Debug, Clone)]
pub(crate) struct SqliteShop {
    store: SqliteStore,
    /// The application's own pool.
    app: SqlitePool,
}

impl SqliteShop {
    async fn ids(&self, sql: &'static str) -> Vec<Uuid> {
        sqlx::query_scalar(sql).fetch_all(&self.app).await.unwrap()
    }

    async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.app).await.unwrap()
    }
}

impl Shop for SqliteShop {
    /// Only the process dies in these tests, not the machine.
    async fn open(address: &str) -> Self {
        let options = SqliteOptions::new(address).with_durability(Durability::Normal);
        let store = SqliteStore::open_with(options).await.unwrap();
        let connect = SqliteConnectOptions::new()
            .filename(address)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(30));
        let app = SqlitePoolOptions::new().max_connections(10).connect_with(connect).await.unwrap();
        Self { store, app }
    }

    async fn build(&self) {
        self.store.migrate().await.unwrap();
        // No constraint: violations must be visible.
        let tables = "create table witness (id blob, doomed bool); create table effect (id blob); \
                      create table report (lost integer)";
        self.app.execute(tables).await.unwrap();
    }

    fn worker(&self, journal: Journal, lease_for: Duration) -> WorkerBuilder {
        let book = |booking: Booking, mut tx: Tx<Transaction<'static, Sqlite>>, context: Context| async move {
            // Before it can fail, so that a failure has something to roll back.
            let insert = sqlx::query("insert into effect values (?1)").bind(context.id().as_uuid());
            insert.execute(&mut **tx).await?;
            booking.expected().result(context.attempt())
        };
        let transactions = self.store.transactions(self.app.clone());
        let bookings = Queue::new(Booking::QUEUE).on_in_transaction(&transactions, book);
        Worker::builder(self.store.clone())
            .queue(parcels(journal, lease_for))
            .queue(usual(bookings, lease_for))
    }

    async fn produce(&self, messages: &[Message], doomed: &[bool], ending: Ending) -> Result<(), BoxError> {
        let mut tx = self.app.begin_with("begin immediate").await?;
        let staged = self.store.outbox().stage_all(&mut tx, messages).await?;
        for ((id, _), is_doomed) in staged.outcomes().iter().zip(doomed) {
            let insert = sqlx::query("insert into witness values (?1, ?2)").bind(id.as_uuid());
            insert.bind(is_doomed).execute(&mut *tx).await?;
        }
        match ending {
            Ending::Commit => tx.commit().await?,
            Ending::Rollback => tx.rollback().await?,
        }
        Ok(())
    }

    async fn left(&self) -> i64 {
        self.count(
            "select (select count(*) from postrider_ready) + (select count(*) from postrider_scheduled)",
        )
        .await
    }

    async fn history(&self) -> History {
        let witness: Vec<(Uuid, bool)> =
            sqlx::query_as("select id, doomed from witness").fetch_all(&self.app).await.unwrap();
        History {
            witness: witness.into_iter().collect(),
            effects: self.ids("select id from effect").await,
            dead: self.ids("select message_id from postrider_dead").await,
            waiting: self
                .ids(
                    "select message_id from postrider_ready union all select message_id from postrider_scheduled",
                )
                .await,
            ..History::default()
        }
    }

    async fn report(&self, lost: u64) {
        let insert = sqlx::query("insert into report values (?1)").bind(i64::try_from(lost).unwrap());
        insert.execute(&self.app).await.unwrap();
    }
}
