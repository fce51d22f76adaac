//! Staging in SQLite through the transactions of every driver: the adapter suite, and the peculiarities of each driver.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
mod support;

use postrider_core::{
    Arrival, ClaimRequest, ConsumerName, Error, Inbox, InboxExt, Message, MessageId, Outbox, OutboxExt,
};
use postrider_stores::sqlite::{SqliteInbox, SqliteOutbox};
use postrider_testkit::{
    Fixture,
    adapter::{Adapted, Driver},
};
use support::SqliteFixture;

async fn adapted<D>() -> Adapted<SqliteFixture, D> {
    let fixture = SqliteFixture::new().await;
    let url = format!("sqlite:{}", fixture.path().display());
    Adapted::new(fixture, &url)
}

fn billing() -> ConsumerName {
    ConsumerName::new("billing").unwrap()
}

fn arrival() -> Arrival {
    Arrival::new(MessageId::at(std::time::SystemTime::now()))
}

/// The payloads of the messages that are due in `orders`.
async fn staged(fixture: &impl Fixture) -> Vec<String> {
    let claimed = fixture.store().claim(&ClaimRequest::new("orders".parse().unwrap(), 100)).await.unwrap();
    claimed.iter().map(|each| String::from_utf8(each.message.payload().to_vec()).unwrap()).collect()
}

/// Every driver reports missing tables as a schema mismatch, and the transaction stays usable.
async fn missing_tables_are_a_schema_mismatch<D: Driver>()
where
    SqliteOutbox: Outbox<D::Tx>,
    SqliteInbox: Inbox<D::Tx>,
{
    let fixture = adapted::<D>().await;
    let mut tx = fixture.begin().await;
    D::run(&mut tx, "alter table postrider_position rename to elsewhere").await;
    let result = fixture.outbox().stage(&mut tx, Message::builder("orders")).await;
    assert!(matches!(result, Err(Error::SchemaMismatch(_))), "{result:?}");
    D::run(&mut tx, "alter table elsewhere rename to postrider_position").await;
    D::run(&mut tx, "alter table postrider_inbox rename to elsewhere").await;
    let result = fixture.inbox().admit(&mut tx, &billing(), arrival()).await;
    assert!(matches!(result, Err(Error::SchemaMismatch(_))), "{result:?}");
    fixture.outbox().stage(&mut tx, Message::builder("orders").payload("kept")).await.unwrap();
    fixture.commit(tx).await;
    assert_eq!(staged(&fixture).await, ["kept"]);
}

/// All messages of a call are staged or none, and the transaction stays usable.
async fn failed_stage_call_stages_nothing<D: Driver>()
where
    SqliteOutbox: Outbox<D::Tx>,
    SqliteInbox: Inbox<D::Tx>,
{
    let fixture = adapted::<D>().await;
    let mut tx = fixture.begin().await;
    D::run(
        &mut tx,
        "create trigger picky before insert on postrider_ready when new.payload = x'626164' \
         begin select raise(abort, 'refused'); end",
    )
    .await;
    let message = |payload: &'static str| Message::builder("orders").payload(payload);
    fixture.outbox().stage(&mut tx, message("before")).await.unwrap();
    // Messages with a key take the other path of staging.
    for make in [message, |payload| Message::builder("orders").key("k").payload(payload)] {
        let mut batch = vec![make("half").build().unwrap(); 100];
        batch.push(make("bad").build().unwrap());
        assert!(fixture.outbox().stage_all(&mut tx, &batch).await.is_err());
    }
    fixture.outbox().stage(&mut tx, message("after")).await.unwrap();
    fixture.commit(tx).await;
    assert_eq!(staged(&fixture).await, ["before", "after"]);
}

/// The rows of one insert share equal values. Differing values are stored unchanged, also if they look like another type.
async fn differing_values_of_a_batch_are_stored<D: Driver>()
where
    SqliteOutbox: Outbox<D::Tx>,
    SqliteInbox: Inbox<D::Tx>,
{
    let texts =
        ["plain", "null", "12", "1.50", "[1]", "\"quoted\"", "back\\slash", "größer", "🚚", "{ready}?1';--"];
    let make = |text: &'static str| {
        let message = Message::builder("orders").payload(text).event_type(text).content_type(text);
        message.tenant(text).subject(text).header("h", text)
    };
    let general: Vec<Message> = texts.map(|text| make(text).key(text).build().unwrap()).into();
    let bare = [Message::builder("orders"), Message::builder("orders").payload(vec![0, 255])];
    let plain: Vec<Message> =
        texts.map(make).into_iter().chain(bare).map(|message| message.build().unwrap()).collect();

    let fixture = adapted::<D>().await;
    let mut tx = fixture.begin().await;
    // The first call creates the queue.
    for batch in [&general, &plain] {
        let staged = fixture.outbox().stage_all(&mut tx, batch).await.unwrap();
        assert_eq!(staged.new_messages(), batch.len());
    }
    fixture.commit(tx).await;
    let claimed = fixture.store().claim(&ClaimRequest::new("orders".parse().unwrap(), 100)).await.unwrap();
    let given: Vec<Message> = general.into_iter().chain(plain).collect();
    assert_eq!(claimed.len(), given.len());
    for (claimed, given) in claimed.iter().zip(given) {
        assert_eq!(claimed.message.clone(), given.identified(claimed.id()));
    }
}

/// A transaction that read before another one wrote fails, and the error says how to begin it.
async fn stale_read_transaction_fails_with_advice_to_begin_immediate<D: Driver>()
where
    SqliteOutbox: Outbox<D::Tx>,
    SqliteInbox: Inbox<D::Tx>,
{
    let fixture = adapted::<D>().await;
    let mut early = fixture.begin().await;
    D::run(&mut early, "create temp table seen as select count(*) from postrider_ready").await;
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, Message::builder("orders")).await.unwrap();
    fixture.commit(tx).await;
    let staged = fixture.outbox().stage(&mut early, Message::builder("orders")).await.map(|_| ());
    let admitted = fixture.inbox().admit(&mut early, &billing(), arrival()).await.map(|_| ());
    for error in [staged, admitted].map(Result::unwrap_err) {
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        assert!(error.to_string().contains("BEGIN IMMEDIATE"), "{error}");
    }
    fixture.rollback(early).await;
}

mod with_sqlx {
    use super::*;
    use sqlx::{Connection, Executor, Sqlite, SqliteConnection, SqlitePool, Transaction};

    struct Sqlx;

    #[async_trait::async_trait]
    impl Driver for Sqlx {
        type Tx = Transaction<'static, Sqlite>;

        async fn begin(url: &str) -> Self::Tx {
            SqlitePool::connect(url).await.unwrap().begin().await.unwrap()
        }

        async fn commit(tx: Self::Tx) {
            tx.commit().await.unwrap();
        }

        async fn rollback(tx: Self::Tx) {
            tx.rollback().await.unwrap();
        }

        async fn run(tx: &mut Self::Tx, sql: &'static str) {
            tx.execute(sql).await.unwrap();
        }
    }

    postrider_testkit::adapter_suite!(in_process adapted::<Sqlx> => Adapted<SqliteFixture, Sqlx>);

    #[tokio::test]
    async fn missing_tables_are_a_schema_mismatch() {
        super::missing_tables_are_a_schema_mismatch::<Sqlx>().await;
    }

    #[tokio::test]
    async fn failed_stage_call_stages_nothing() {
        super::failed_stage_call_stages_nothing::<Sqlx>().await;
    }

    #[tokio::test]
    async fn differing_values_of_a_batch_are_stored() {
        super::differing_values_of_a_batch_are_stored::<Sqlx>().await;
    }

    #[tokio::test]
    async fn stale_read_transaction_fails_with_advice_to_begin_immediate() {
        super::stale_read_transaction_fails_with_advice_to_begin_immediate::<Sqlx>().await;
    }

    /// A transaction may also borrow a connection.
    #[tokio::test]
    async fn stage_in_transaction_on_borrowed_connection() {
        let fixture = adapted::<Sqlx>().await;
        let mut connection = SqliteConnection::connect(fixture.url()).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        fixture.outbox().stage(&mut tx, Message::builder("orders").payload("lent")).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(staged(&fixture).await, ["lent"]);
    }
}

#[cfg(feature = "sea-orm")]
mod with_sea_orm {
    use super::*;
    use sea_orm::{
        ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction, SqliteTransactionMode,
        TransactionOptions, TransactionTrait,
    };
    use sqlx::sqlite::SqlitePoolOptions;

    struct SeaOrm;

    #[async_trait::async_trait]
    impl Driver for SeaOrm {
        type Tx = DatabaseTransaction;

        async fn begin(url: &str) -> Self::Tx {
            Database::connect(url).await.unwrap().begin().await.unwrap()
        }

        async fn commit(tx: Self::Tx) {
            tx.commit().await.unwrap();
        }

        async fn rollback(tx: Self::Tx) {
            tx.rollback().await.unwrap();
        }

        async fn run(tx: &mut Self::Tx, sql: &'static str) {
            tx.execute_unprepared(sql).await.unwrap();
        }
    }

    postrider_testkit::adapter_suite!(in_process adapted::<SeaOrm> => Adapted<SqliteFixture, SeaOrm>);

    #[tokio::test]
    async fn missing_tables_are_a_schema_mismatch() {
        super::missing_tables_are_a_schema_mismatch::<SeaOrm>().await;
    }

    #[tokio::test]
    async fn failed_stage_call_stages_nothing() {
        super::failed_stage_call_stages_nothing::<SeaOrm>().await;
    }

    #[tokio::test]
    async fn differing_values_of_a_batch_are_stored() {
        super::differing_values_of_a_batch_are_stored::<SeaOrm>().await;
    }

    #[tokio::test]
    async fn stale_read_transaction_fails_with_advice_to_begin_immediate() {
        super::stale_read_transaction_fails_with_advice_to_begin_immediate::<SeaOrm>().await;
    }

    /// A nested transaction of the driver is a savepoint.
    #[tokio::test]
    async fn rollback_of_nested_transaction_removes_its_messages() {
        let fixture = adapted::<SeaOrm>().await;
        let database = Database::connect(fixture.url()).await.unwrap();
        let immediate = TransactionOptions {
            sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
            ..Default::default()
        };
        let mut outer = database.begin_with_options(immediate).await.unwrap();
        fixture.outbox().stage(&mut outer, Message::builder("orders").payload("kept")).await.unwrap();
        let mut inner = outer.begin().await.unwrap();
        fixture.outbox().stage(&mut inner, Message::builder("orders").payload("undone")).await.unwrap();
        inner.rollback().await.unwrap();
        outer.commit().await.unwrap();
        assert_eq!(staged(&fixture).await, ["kept"]);
    }

    /// Both cache prepared statements on the connection, by their text.
    #[tokio::test]
    async fn sqlx_and_sea_orm_stage_on_one_connection() {
        let fixture = adapted::<SeaOrm>().await;
        let pool = SqlitePoolOptions::new().max_connections(1).connect(fixture.url()).await.unwrap();
        let sea = DatabaseConnection::from(pool.clone());
        let outbox = fixture.outbox();
        let make = |payload: &'static str| Message::builder("orders").key("k").payload(payload);
        for _ in 0..2 {
            let mut tx = pool.begin().await.unwrap();
            outbox.stage(&mut tx, make("sqlx")).await.unwrap();
            tx.commit().await.unwrap();
            let mut tx = sea.begin().await.unwrap();
            outbox.stage(&mut tx, make("sea-orm")).await.unwrap();
            tx.commit().await.unwrap();
        }
        assert_eq!(staged(&fixture).await, ["sqlx", "sea-orm", "sqlx", "sea-orm"]);
    }

    /// A transaction of another database is refused before anything is sent.
    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn postgres_outbox_refuses_sqlite_transaction() {
        let fixture = adapted::<SeaOrm>().await;
        let mut tx = fixture.begin().await;
        let outbox = postrider_stores::postgres::PostgresOutbox::default();
        let refused = outbox.stage(&mut tx, Message::builder("orders")).await.unwrap_err();
        assert_eq!(refused.to_string(), "transaction: is one of Sqlite; this outbox is in PostgreSQL");
        let inbox = postrider_stores::postgres::PostgresInbox::default();
        let refused = inbox.admit(&mut tx, &billing(), arrival()).await.unwrap_err();
        assert_eq!(refused.to_string(), "transaction: is one of Sqlite; this inbox is in PostgreSQL");
        fixture.rollback(tx).await;
    }
}
