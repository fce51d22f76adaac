//! A process that dies in the middle of a tick, while another one waits for the same tick.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/postgres.rs"]
mod support;

use postrider_core::{ClaimRequest, Message, ScheduleName, Store};
use sqlx::{PgPool, Postgres, Transaction};
use std::time::Duration;
use support::PostgresFixture;

/// A process in the middle of the tick that is due in a minute.
async fn halfway(app: &PgPool) -> Transaction<'static, Postgres> {
    let mut tx = app.begin().await.unwrap();
    let record = "update postrider.schedule set last_at = date_trunc('second', last_at) + interval '60 s'";
    assert_eq!(sqlx::query(record).execute(&mut *tx).await.unwrap().rows_affected(), 1);
    tx
}

/// Another process attempts the tick meanwhile. Returns whether it staged the tick after the first process `commits` or dies.
async fn second_of_two(commits: bool) -> (bool, usize) {
    let fixture = PostgresFixture::new().await;
    let nightly = ScheduleName::new("nightly").unwrap();
    let begun = fixture.store.read_schedule(&nightly).await.unwrap().last;
    let seconds = begun.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let at = std::time::UNIX_EPOCH + Duration::from_secs(seconds + 60);
    let first = halfway(&fixture.app).await;
    let store = fixture.store.clone();
    let second = tokio::spawn(async move {
        let letter = Message::builder("letters").payload("second").build().unwrap();
        store.tick(&nightly, at, &[letter]).await.unwrap()
    });
    fixture.database.somebody_waits().await;
    if commits {
        first.commit().await.unwrap();
    } else {
        first.rollback().await.unwrap();
    }
    let staged = second.await.unwrap();
    let letters = ClaimRequest::new("letters".parse().unwrap(), 10);
    (staged, fixture.store.claim(&letters).await.unwrap().len())
}

#[tokio::test]
async fn process_waiting_for_tick_finds_it_staged() {
    assert_eq!(second_of_two(true).await, (false, 0));
}

#[tokio::test]
async fn process_waiting_for_tick_stages_it_after_first_dies() {
    assert_eq!(second_of_two(false).await, (true, 1));
}
