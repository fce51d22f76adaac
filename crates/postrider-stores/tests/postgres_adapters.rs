//! Staging in the transactions of every driver: the adapter suite, and tests of each driver's peculiarities.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{
    Arrival, ConsumerName, Error, Inbox, InboxExt, Message, MessageId, Outbox, OutboxExt,
    inspect::{Inspect, ListRequest, StateFilter},
};
use postrider_stores::postgres::{PostgresInbox, PostgresOutbox};
use postrider_testkit::{
    Fixture,
    adapter::{Adapted, Driver},
};
use support::PostgresFixture;

async fn adapted<D>() -> Adapted<PostgresFixture, D> {
    let fixture = PostgresFixture::new().await;
    let url = fixture.database.url().to_owned();
    Adapted::new(fixture, &url)
}

fn billing() -> ConsumerName {
    ConsumerName::new("billing").unwrap()
}

fn arrival() -> Arrival {
    Arrival::new(MessageId::at(std::time::SystemTime::now()))
}

/// Missing tables are a schema mismatch, whichever driver finds out.
async fn missing_tables_are_a_schema_mismatch<D: Driver>()
where
    PostgresOutbox: Outbox<D::Tx>,
    PostgresInbox: Inbox<D::Tx>,
{
    let fixture = adapted::<D>().await;
    let mut tx = fixture.begin().await;
    D::run(&mut tx, "alter schema postrider rename to elsewhere").await;
    let staged = fixture.outbox().stage(&mut tx, Message::builder("orders")).await;
    assert!(matches!(staged, Err(Error::SchemaMismatch(_))), "{staged:?}");
    fixture.rollback(tx).await;

    let mut tx = fixture.begin().await;
    D::run(&mut tx, "alter schema postrider rename to elsewhere").await;
    let admitted = fixture.inbox().admit(&mut tx, &billing(), arrival()).await;
    assert!(matches!(admitted, Err(Error::SchemaMismatch(_))), "{admitted:?}");
    fixture.rollback(tx).await;
}

mod with_sqlx {
    use super::*;
    use sqlx::{Connection, Executor, PgConnection, PgPool, Postgres, Transaction, postgres::PgPoolOptions};

    struct Sqlx;

    #[async_trait::async_trait]
    impl Driver for Sqlx {
        type Tx = Transaction<'static, Postgres>;

        async fn begin(url: &str) -> Self::Tx {
            let pool: PgPool = PgPoolOptions::new().max_connections(1).connect(url).await.unwrap();
            pool.begin().await.unwrap()
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

    postrider_testkit::adapter_suite!(adapted::<Sqlx> => Adapted<PostgresFixture, Sqlx>);

    #[tokio::test]
    async fn missing_tables_are_a_schema_mismatch() {
        super::missing_tables_are_a_schema_mismatch::<Sqlx>().await;
    }

    /// A transaction may also borrow a connection.
    #[tokio::test]
    async fn stage_in_transaction_on_borrowed_connection() {
        let fixture = PostgresFixture::new().await;
        let mut connection = PgConnection::connect(fixture.database.url()).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        fixture.outbox().stage(&mut tx, Message::builder("orders").payload("lent")).await.unwrap();
        tx.commit().await.unwrap();
        let orders = ListRequest::new("orders".parse().unwrap(), StateFilter::Ready);
        let staged = fixture.store.list(&orders).await.unwrap().entries;
        let payloads: Vec<_> = staged.iter().map(|entry| entry.message.payload().as_ref()).collect();
        assert_eq!(payloads, [b"lent"]);
    }
}

#[cfg(feature = "tokio-postgres")]
mod with_tokio_postgres {
    use super::*;
    use tokio_postgres::{Client, NoTls, Transaction};

    struct TokioPostgres;

    async fn connect(url: &str) -> Client {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    #[async_trait::async_trait]
    impl Driver for TokioPostgres {
        type Tx = Transaction<'static>;

        async fn begin(url: &str) -> Self::Tx {
            // A transaction borrows its client; this one lives as long as the test.
            let client = Box::leak(Box::new(connect(url).await));
            client.transaction().await.unwrap()
        }

        async fn commit(tx: Self::Tx) {
            tx.commit().await.unwrap();
        }

        async fn rollback(tx: Self::Tx) {
            tx.rollback().await.unwrap();
        }

        async fn run(tx: &mut Self::Tx, sql: &'static str) {
            tx.batch_execute(sql).await.unwrap();
        }
    }

    postrider_testkit::adapter_suite!(adapted::<TokioPostgres> => Adapted<PostgresFixture, TokioPostgres>);

    #[tokio::test]
    async fn missing_tables_are_a_schema_mismatch() {
        super::missing_tables_are_a_schema_mismatch::<TokioPostgres>().await;
    }

    /// A nested transaction of the driver is a savepoint.
    #[tokio::test]
    async fn rollback_of_nested_transaction_removes_its_messages() {
        let fixture = adapted::<TokioPostgres>().await;
        let mut client = connect(fixture.url()).await;
        let mut outer = client.transaction().await.unwrap();
        fixture.outbox().stage(&mut outer, Message::builder("orders").payload("kept")).await.unwrap();
        let mut inner = outer.transaction().await.unwrap();
        fixture.outbox().stage(&mut inner, Message::builder("orders").payload("undone")).await.unwrap();
        inner.rollback().await.unwrap();
        outer.commit().await.unwrap();
        assert_eq!(staged(&fixture).await, ["kept"]);
    }

    #[tokio::test]
    async fn lost_connection_is_a_transient_error() {
        let fixture = adapted::<TokioPostgres>().await;
        let mut tx = fixture.begin().await;
        // The server announces the end of the connection before it closes it.
        tx.batch_execute("select pg_terminate_backend(pg_backend_pid())").await.unwrap_err();
        let staged = fixture.outbox().stage(&mut tx, Message::builder("orders")).await;
        assert!(matches!(staged, Err(Error::Unavailable(_))), "{staged:?}");
    }
}

#[cfg(feature = "diesel-async")]
mod with_diesel_async {
    use super::*;
    use diesel_async::{
        AnsiTransactionManager, AsyncConnection, AsyncPgConnection, SimpleAsyncConnection, TransactionManager,
    };

    struct DieselAsync;

    #[async_trait::async_trait]
    impl Driver for DieselAsync {
        type Tx = AsyncPgConnection;

        async fn begin(url: &str) -> Self::Tx {
            let mut connection = AsyncPgConnection::establish(url).await.unwrap();
            AnsiTransactionManager::begin_transaction(&mut connection).await.unwrap();
            connection
        }

        async fn commit(mut tx: Self::Tx) {
            AnsiTransactionManager::commit_transaction(&mut tx).await.unwrap();
        }

        async fn rollback(mut tx: Self::Tx) {
            AnsiTransactionManager::rollback_transaction(&mut tx).await.unwrap();
        }

        async fn run(tx: &mut Self::Tx, sql: &'static str) {
            tx.batch_execute(sql).await.unwrap();
        }
    }

    postrider_testkit::adapter_suite!(adapted::<DieselAsync> => Adapted<PostgresFixture, DieselAsync>);

    #[tokio::test]
    async fn missing_tables_are_a_schema_mismatch() {
        super::missing_tables_are_a_schema_mismatch::<DieselAsync>().await;
    }

    /// Diesel has no type for a transaction, so the code checks the connection.
    #[tokio::test]
    async fn stage_outside_transaction_is_refused() {
        let fixture = adapted::<DieselAsync>().await;
        let mut connection = AsyncPgConnection::establish(fixture.url()).await.unwrap();
        let outbox = fixture.outbox();
        let refused = outbox.stage(&mut connection, Message::builder("orders")).await;
        let Err(Error::Invalid(invalid)) = refused else {
            panic!("staging outside a transaction: {refused:?}")
        };
        assert_eq!(invalid.field(), "transaction");
        let timer = "reminder".try_into().unwrap();
        let refused = outbox.cancel_timer(&mut connection, &"orders".try_into().unwrap(), &timer).await;
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        assert_eq!(staged(&fixture).await, [""; 0]);
    }

    #[tokio::test]
    async fn admit_outside_transaction_is_refused() {
        let fixture = adapted::<DieselAsync>().await;
        let mut connection = AsyncPgConnection::establish(fixture.url()).await.unwrap();
        let refused = fixture.inbox().admit(&mut connection, &billing(), arrival()).await;
        let Err(Error::Invalid(invalid)) = refused else {
            panic!("admitting outside a transaction: {refused:?}")
        };
        assert_eq!(invalid.field(), "transaction");
    }

    /// Nested closures, as applications write them.
    #[tokio::test]
    async fn messages_commit_or_roll_back_with_transaction_closure() {
        let fixture = adapted::<DieselAsync>().await;
        let mut connection = AsyncPgConnection::establish(fixture.url()).await.unwrap();
        let outbox = fixture.outbox();
        for (payload, fails) in [("undone", true), ("kept", false)] {
            let outbox = outbox.clone();
            let done = connection
                .transaction(async move |tx| -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
                    outbox.stage(tx, Message::builder("orders").payload(payload)).await?;
                    let nested: Result<(), diesel::result::Error> = tx
                        .transaction(async |tx| {
                            outbox.stage(tx, Message::builder("orders").payload("nested")).await.unwrap();
                            Err(diesel::result::Error::RollbackTransaction)
                        })
                        .await;
                    assert!(nested.is_err());
                    if fails { Err("a failure of the application".into()) } else { Ok(()) }
                })
                .await;
            assert_eq!(done.is_err(), fails);
        }
        assert_eq!(staged(&fixture).await, ["kept"]);
    }
}

#[cfg(feature = "sea-orm")]
mod with_sea_orm {
    use super::*;
    use sea_orm::{ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction, TransactionTrait};
    use sqlx::postgres::PgPoolOptions;

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

    postrider_testkit::adapter_suite!(adapted::<SeaOrm> => Adapted<PostgresFixture, SeaOrm>);

    #[tokio::test]
    async fn missing_tables_are_a_schema_mismatch() {
        super::missing_tables_are_a_schema_mismatch::<SeaOrm>().await;
    }

    /// A nested transaction of the driver is a savepoint.
    #[tokio::test]
    async fn rollback_of_nested_transaction_removes_its_messages() {
        let fixture = adapted::<SeaOrm>().await;
        let mut outer = fixture.begin().await;
        fixture.outbox().stage(&mut outer, Message::builder("orders").payload("kept")).await.unwrap();
        let mut inner = outer.begin().await.unwrap();
        fixture.outbox().stage(&mut inner, Message::builder("orders").payload("undone")).await.unwrap();
        inner.rollback().await.unwrap();
        outer.commit().await.unwrap();
        assert_eq!(staged(&fixture).await, ["kept"]);
    }

    /// A transaction of another database is refused before anything is sent.
    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn sqlite_outbox_refuses_postgres_transaction() {
        let fixture = adapted::<SeaOrm>().await;
        let mut tx = fixture.begin().await;
        let outbox = postrider_stores::sqlite::SqliteOutbox::default();
        let refused = outbox.stage(&mut tx, Message::builder("orders")).await.unwrap_err();
        assert_eq!(refused.to_string(), "transaction: is one of Postgres; this outbox is in SQLite");
        let inbox = postrider_stores::sqlite::SqliteInbox::default();
        let refused = inbox.admit(&mut tx, &billing(), arrival()).await.unwrap_err();
        assert_eq!(refused.to_string(), "transaction: is one of Postgres; this inbox is in SQLite");
        fixture.outbox().stage(&mut tx, Message::builder("orders").payload("kept")).await.unwrap();
        fixture.commit(tx).await;
        assert_eq!(staged(&fixture).await, ["kept"]);
    }

    /// Both keep prepared statements on the connection, by their text, and bind them differently.
    #[tokio::test]
    async fn sqlx_and_sea_orm_stage_on_one_connection() {
        let fixture = adapted::<SeaOrm>().await;
        let pool = PgPoolOptions::new().max_connections(1).connect(fixture.url()).await.unwrap();
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
}

/// The payloads of the due messages in `orders`.
#[cfg(any(feature = "tokio-postgres", feature = "diesel-async", feature = "sea-orm"))]
async fn staged(fixture: &impl Fixture) -> Vec<String> {
    let request = postrider_core::ClaimRequest::new("orders".try_into().unwrap(), 100);
    let claimed = fixture.store().claim(&request).await.unwrap();
    claimed.iter().map(|each| String::from_utf8(each.message.payload().to_vec()).unwrap()).collect()
}
