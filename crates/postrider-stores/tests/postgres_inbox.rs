//! The inbox under conditions specific to PostgreSQL: terminated sessions, stricter isolation, poolers.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{Admission, Arrival, ConsumerName, Error, Inbox, InboxExt, MessageId};
use postrider_testkit::Fixture;
use sqlx::{Executor, Row};
use std::time::SystemTime;
use support::PostgresFixture;

fn billing() -> ConsumerName {
    ConsumerName::new("billing").unwrap()
}

fn arrival() -> Arrival {
    Arrival::new(MessageId::at(SystemTime::now()))
}

/// When a consumer's session ends in the middle of its transaction, the message is new for the consumer that waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn admission_of_terminated_session_is_first_for_waiting_one() {
    let fixture = PostgresFixture::new().await;
    let arrival = arrival();
    let mut first = fixture.begin().await;
    let inbox = fixture.inbox();
    assert_eq!(inbox.admit(&mut first, &billing(), arrival.clone()).await.unwrap(), Admission::First);
    let session = sqlx::query("select pg_backend_pid()").fetch_one(&mut *first).await.unwrap();
    let session: i32 = session.get(0);
    let mut second = fixture.begin().await;
    // The application name by which waiting sessions are found.
    second.execute("set local application_name = 'postrider'").await.unwrap();
    let waiting = tokio::spawn(async move {
        let admitted = inbox.admit(&mut second, &billing(), arrival).await.unwrap();
        second.commit().await.unwrap();
        admitted
    });
    fixture.database.somebody_waits().await;
    let end = sqlx::query("select pg_terminate_backend($1)").bind(session);
    end.execute(&fixture.app).await.unwrap();
    assert_eq!(waiting.await.unwrap(), Admission::First);
}

/// In a transaction with one snapshot, a message that another transaction admitted since is not a duplicate but a serialization failure.
#[tokio::test]
async fn concurrent_duplicate_under_repeatable_read_is_transient() {
    let fixture = PostgresFixture::new().await;
    let (inbox, before, meanwhile) = (fixture.inbox(), arrival(), arrival());
    let mut tx = fixture.begin().await;
    inbox.admit(&mut tx, &billing(), before.clone()).await.unwrap();
    fixture.commit(tx).await;
    let mut strict = fixture.app.begin_with("begin isolation level repeatable read").await.unwrap();
    assert_eq!(inbox.admit(&mut strict, &billing(), before).await.unwrap(), Admission::Duplicate);
    let mut tx = fixture.begin().await;
    inbox.admit(&mut tx, &billing(), meanwhile.clone()).await.unwrap();
    fixture.commit(tx).await;
    let failed = inbox.admit(&mut strict, &billing(), meanwhile.clone()).await;
    assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}");
    strict.rollback().await.unwrap();
    let mut again = fixture.app.begin_with("begin isolation level repeatable read").await.unwrap();
    assert_eq!(inbox.admit(&mut again, &billing(), meanwhile).await.unwrap(), Admission::Duplicate);
}

/// A pooler may lend the session to another client next.
#[tokio::test]
async fn no_prepared_statement_remains_behind_pooler() {
    let fixture = PostgresFixture::new().await;
    for (inbox, kept) in [(fixture.inbox().behind_pooler(), 0), (fixture.inbox(), 1)] {
        let mut tx = fixture.begin().await;
        inbox.admit_all(&mut tx, &billing(), &[arrival(), arrival()]).await.unwrap();
        let count = "select count(*) from pg_prepared_statements where statement like '%admit%'";
        let row = sqlx::raw_sql(count).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(row.try_get_unchecked::<&str, _>(0).unwrap(), kept.to_string());
    }
}
