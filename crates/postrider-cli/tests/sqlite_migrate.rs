//! `postrider migrate` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{schema::Schema, sqlite::SqliteStore};
use sqlx::{Connection, Executor, SqliteConnection};
use support::program::{CompletionOutcome, postrider, run};
use tempfile::{TempDir, tempdir};

fn migrate(folder: &TempDir, arguments: &[&str]) -> CompletionOutcome {
    let all = [&["migrate"], arguments, &["--db", "shop.db"]].concat();
    run(postrider(&all).current_dir(folder.path()))
}

#[tokio::test]
async fn up_creates_the_file_and_prints_the_version() {
    let folder = tempdir().unwrap();
    let missing = migrate(&folder, &["status"]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(1), ""), "{missing:?}");
    insta::assert_snapshot!("missing", missing.err);

    std::fs::write(folder.path().join("shop.db"), "").unwrap();
    insta::assert_snapshot!("no_tables", migrate(&folder, &["status"]).out);
    let up = migrate(&folder, &["up"]);
    assert_eq!((up.code, up.err.as_str()), (Some(0), ""), "{up:?}");
    insta::assert_snapshot!("up", up.out);
    for again in ["up", "status"] {
        let again = migrate(&folder, &[again, "--json"]);
        assert_eq!((again.code, again.err.as_str()), (Some(0), ""), "{again:?}");
        insta::assert_snapshot!("status_json", again.out);
    }
    let fresh = tempdir().unwrap();
    assert_eq!(migrate(&fresh, &["up"]).code, Some(0));
    assert!(fresh.path().join("shop.db").is_file());
}

#[tokio::test]
async fn validate_lists_drift_and_exits_with_1() {
    let folder = tempdir().unwrap();
    assert_eq!(migrate(&folder, &["up"]).code, Some(0));
    let whole = migrate(&folder, &["validate"]);
    assert_eq!((whole.code, whole.err.as_str()), (Some(0), ""), "{whole:?}");
    assert_eq!(migrate(&folder, &["validate", "--json"]).out, "{\"version\":1,\"drift\":[]}\n");

    let file = folder.path().join("shop.db");
    let mut connection = SqliteConnection::connect(&format!("sqlite:{}", file.display())).await.unwrap();
    connection.execute("drop index postrider_dead_message").await.unwrap();
    connection.close().await.unwrap();
    let drifted = migrate(&folder, &["validate"]);
    assert_eq!(drifted.code, Some(1), "{drifted:?}");
    insta::assert_snapshot!("drift", drifted.out);
    let json = migrate(&folder, &["validate", "--json"]);
    assert_eq!((json.code, json.err.as_str()), (Some(1), ""), "{json:?}");
    insta::assert_snapshot!("drift_json", json.out);
}

#[tokio::test]
async fn print_matches_the_statements_of_the_store() {
    let folder = tempdir().unwrap();
    let printed = run(&mut postrider(&["migrate", "print", "--kind", "sqlite"]));
    let store = SqliteStore::open(folder.path().join("shop.db")).await.unwrap();
    assert_eq!(printed.out.trim_end(), store.print().trim_end());
    store.close().await;
    let printed = run(&mut postrider(&["migrate", "print", "--kind", "postgres"]));
    assert!(printed.out.starts_with("create schema if not exists \"postrider\";\n"), "{}", printed.out);
}

#[test]
fn misspelled_subcommand_gets_a_suggestion() {
    let typo = run(&mut postrider(&["migrate", "stauts"]));
    assert_eq!(typo.code, Some(2));
    assert!(typo.err.contains("'status'"), "{typo:?}");
}
