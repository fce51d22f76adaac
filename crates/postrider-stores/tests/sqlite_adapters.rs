//! Staging in SQLite through the transactions of every driver passes the adapter suite, and what is peculiar to each.

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

/// The payloads of what is due in `orders`.
async fn staged(fixture: &impl Fixture) -> Vec<String> {
    let claimed = fixture.store().claim(&ClaimRequest::new("orders".parse().unwrap(), 100)).await.unwrap();
    claimed.iter().map(|each| String::from_utf8(each.message.payload().to_vec()).unwrap()).collect()
}

/// Tables that are not there are told as such, whichever driver ran into it, and the transaction goes on.
async fn missing_tables_are_told<D: Driver>()
where
    SqliteOutbox: Outbox<D::Tx>,
    SqliteInbox: Inbox<D::Tx>,
{
    let fixture = adapted::<D>().await;
    let mut tx = fixture.begin().await;
    D::run(&mut tx, "alter table postrider_line rename to elsewhere").await;
    let failed = fixture.outbox().stage(&mut tx, Message::builder("orders")).await;
    assert!(matches!(failed, Err(Error::SchemaMismatch(_))), "{failed:?}");
    D::run(&mut tx, "alter table elsewhere rename to postrider_line").await;
    D::run(&mut tx, "alter table postrider_inbox rename to elsewhere").await;
    let failed = fixture.inbox().admit(&mut tx, &billing(), arrival()).await;
    assert!(matches!(failed, Err(Error::SchemaMismatch(_))), "{failed:?}");
    fixture.outbox().stage(&mut tx, Message::builder("orders").payload("kept")).await.unwrap();
    fixture.commit(tx).await;
    assert_eq!(staged(&fixture).await, ["kept"]);
}

/// All messages of a call or none, and the transaction goes on.
async fn a_call_that_fails_halfway_stages_nothing<D: Driver>()
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
    // Those with a key are staged another way.
    for make in [message, |payload| Message::builder("orders").key("k").payload(payload)] {
        let mut batch = vec![make("half").build().unwrap(); 100];
        batch.push(make("bad").build().unwrap());
        assert!(fixture.outbox().stage_all(&mut tx, &batch).await.is_err());
    }
    fixture.outbox().stage(&mut tx, message("after")).await.unwrap();
    fixture.commit(tx).await;
    assert_eq!(staged(&fixture).await, ["before", "after"]);
}

/// Rows of one insert share what they can. Whatever they do not arrives as it was given, also where it looks like something else.
async fn what_differs_within_a_batch_arrives<D: Driver>()
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
    // The first call makes the queue.
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

/// Whoever read before others wrote is told how to begin.
async fn a_transaction_that_read_too_early_is_told_how_to_begin<D: Driver>()
where
    SqliteOutbox: Outbox<D::Tx>,
    SqliteInbox: Inbox<D::Tx>,
{
    let fixture = adapted::<D>().await;
    let mut early = fixture.begin().await;
    D::run(&mut early, "create temp table looked as select count(*) from postrider_ready").await;
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
    async fn missing_tables_are_told() {
        super::missing_tables_are_told::<Sqlx>().await;
    }

    #[tokio::test]
    async fn a_call_that_fails_halfway_stages_nothing() {
        super::a_call_that_fails_halfway_stages_nothing::<Sqlx>().await;
    }

    #[tokio::test]
    async fn what_differs_within_a_batch_arrives() {
        super::what_differs_within_a_batch_arrives::<Sqlx>().await;
    }

    #[tokio::test]
    async fn a_transaction_that_read_too_early_is_told_how_to_begin() {
        super::a_transaction_that_read_too_early_is_told_how_to_begin::<Sqlx>().await;
    }

    /// A transaction may also borrow a connection.
    #[tokio::test]
    async fn a_borrowed_connection_serves_as_well() {
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
    async fn missing_tables_are_told() {
        super::missing_tables_are_told::<SeaOrm>().await;
    }

    #[tokio::test]
    async fn a_call_that_fails_halfway_stages_nothing() {
        super::a_call_that_fails_halfway_stages_nothing::<SeaOrm>().await;
    }

    #[tokio::test]
    async fn what_differs_within_a_batch_arrives() {
        super::what_differs_within_a_batch_arrives::<SeaOrm>().await;
    }

    #[tokio::test]
    async fn a_transaction_that_read_too_early_is_told_how_to_begin() {
        super::a_transaction_that_read_too_early_is_told_how_to_begin::<SeaOrm>().await;
    }

    /// A nested transaction of the driver is a savepoint.
    #[tokio::test]
    async fn a_nested_transaction_takes_its_messages_along() {
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

    /// Both keep prepared statements on the connection, by their text.
    #[tokio::test]
    async fn sqlx_and_sea_orm_share_a_connection() {
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

    /// A transaction of another database is told apart before anything is sent.
    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn an_outbox_in_postgresql_refuses_a_transaction_of_sqlite() {
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
