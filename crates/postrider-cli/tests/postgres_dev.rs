//! `postrider dev` on PostgreSQL.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use nix::sys::signal::Signal;
use postrider_testkit::postgres::TestDatabase;
use sqlx::{Connection, PgConnection};
use support::program::{AtWork, postrider, run};

#[tokio::test]
async fn short_run_adds_up() {
    let database = TestDatabase::empty().await;
    run(&mut postrider(&["dev", "--for", "3s", "--json", "--db", database.url()])).adds_up();
}

/// Each run also handles events of the other.
#[tokio::test]
async fn two_runs_on_one_database_both_add_up() {
    let database = TestDatabase::empty().await;
    let arguments = ["dev", "--for", "2s", "--json", "--rate", "100", "--db", database.url()];
    let one = AtWork::start(&mut postrider(&arguments));
    let other = AtWork::start(&mut postrider(&arguments));
    one.end().adds_up();
    other.end().adds_up();
}

#[tokio::test]
async fn signal_drains_and_run_adds_up() {
    let database = TestDatabase::empty().await;
    let mut at_work = AtWork::start(&mut postrider(&["dev", "--json", "--db", database.url()]));
    at_work.until("committed");
    at_work.signal(Signal::SIGINT);
    at_work.end().adds_up();
}

/// Connections break at any point of a transaction; the outcome of a commit in progress is unknown.
#[tokio::test]
async fn terminated_connections_lose_and_duplicate_nothing() {
    let database = TestDatabase::empty().await;
    let mut at_work = AtWork::start(&mut postrider(&["dev", "--json", "--db", database.url()]));
    let mut killer = PgConnection::connect(database.url()).await.unwrap();
    for _ in 0..3 {
        at_work.until("committed");
        let cut = "select pg_terminate_backend(pid) from pg_stat_activity \
            where datname = current_database() and pid <> pg_backend_pid()";
        let cut = sqlx::query(cut).execute(&mut killer).await.unwrap();
        assert!(cut.rows_affected() > 0);
    }
    at_work.until("committed");
    at_work.signal(Signal::SIGINT);
    at_work.end().adds_up();
}

#[tokio::test]
async fn missing_database_fails_with_createdb_advice() {
    let database = TestDatabase::empty().await;
    let url = database.url().to_owned();
    drop(database);
    let ended = run(&mut postrider(&["dev", "--for", "1s", "--json", "--db", &url]));
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.err.contains("does not exist") && ended.err.contains("createdb "), "{ended:?}");
}
