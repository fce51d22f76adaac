//! `postrider audit verify` on SQLite.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{AuditEvent, AuditKind, audit::ChainHead, schema::Schema, sqlite::SqliteStore};
use sqlx::{AssertSqlSafe, Connection, Executor, SqliteConnection};
use std::fs;
use support::program::{CompletionOutcome, postrider, run};
use tempfile::{TempDir, tempdir};
use uuid::Uuid;

/// A store whose ledger has three events, which are the same in every run.
async fn three_events() -> (TempDir, ChainHead) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    store.close().await;
    let mut connection = connect(&folder).await;
    let mut head = ChainHead::default();
    for number in 1..=3 {
        let event = AuditEvent { id: Uuid::from_u128(number), ..AuditEvent::new(AuditKind::Succeeded) };
        let (at, body) = (1_700_000_000_000_000, serde_json::to_string(&event).unwrap());
        let next = head.followed_by(at, &body);
        sqlx::query(
            "insert into postrider_ledger (position, at, body, previous, hash) values (?, ?, ?, ?, ?)",
        )
        .bind(i64::try_from(next.position).unwrap())
        .bind(at)
        .bind(body)
        .bind(&head.hash[..])
        .bind(&next.hash[..])
        .execute(&mut connection)
        .await
        .unwrap();
        head = next;
    }
    connection.close().await.unwrap();
    (folder, head)
}

async fn connect(folder: &TempDir) -> SqliteConnection {
    SqliteConnection::connect(&format!("sqlite:{}", folder.path().join("shop.db").display())).await.unwrap()
}

async fn tamper(folder: &TempDir, sql: &str) {
    let mut connection = connect(folder).await;
    connection
        .execute("drop trigger postrider_ledger_update; drop trigger postrider_ledger_delete")
        .await
        .unwrap();
    connection.execute("drop trigger postrider_ledger_head_update").await.unwrap();
    connection.execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    connection.close().await.unwrap();
}

fn verify(folder: &TempDir, arguments: &[&str]) -> CompletionOutcome {
    let all = [&["audit", "verify", "--db", "shop.db"], arguments].concat();
    run(postrider(&all).current_dir(folder.path()))
}

#[tokio::test]
async fn intact_ledger_is_verified_with_its_head() {
    let (folder, head) = three_events().await;
    let ended = verify(&folder, &[]);
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    insta::assert_snapshot!(ended.out);
    // The printed head can be pinned.
    let printed = ended.out.lines().find_map(|line| line.strip_prefix("head ")).unwrap();
    assert_eq!(printed, head.to_string());
    let pinned = verify(&folder, &["--pinned", printed, "--json"]);
    assert_eq!((pinned.code, pinned.err.as_str()), (Some(0), ""), "{pinned:?}");
    insta::assert_snapshot!("pinned_json", pinned.out);
    assert_eq!(pinned.report()["events"], 3);
    // An earlier head is accepted as well.
    let beginning = ChainHead::default().to_string();
    assert_eq!(verify(&folder, &["--pinned", &beginning]).code, Some(0));
}

#[tokio::test]
async fn changed_ledger_exits_with_1_and_names_the_event() {
    let (folder, _) = three_events().await;
    tamper(&folder, "update postrider_ledger set at = at + 1 where position = 2").await;
    for arguments in [&[][..], &["--json"]] {
        let ended = verify(&folder, arguments);
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
        insta::assert_snapshot!("changed", ended.err);
    }
}

#[tokio::test]
async fn truncated_ledger_is_found_by_the_pinned_head() {
    let (folder, head) = three_events().await;
    tamper(
        &folder,
        "delete from postrider_ledger where position = 3; update postrider_ledger_head set position = 2, \
         hash = (select hash from postrider_ledger where position = 2)",
    )
    .await;
    assert_eq!(verify(&folder, &[]).code, Some(0));
    let ended = verify(&folder, &["--pinned", &head.to_string()]);
    assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    assert!(ended.err.contains("broken at event 3"), "{ended:?}");
}

#[tokio::test]
async fn database_without_ledger_fails_and_missing_file_is_not_created() {
    let folder = tempdir().unwrap();
    let missing = verify(&folder, &[]);
    assert_eq!((missing.code, missing.out.as_str()), (Some(1), ""), "{missing:?}");
    assert!(missing.err.contains("pass the path of an existing database"), "{missing:?}");
    assert!(fs::read_dir(folder.path()).unwrap().next().is_none());

    fs::write(folder.path().join("shop.db"), "").unwrap();
    let mut connection = connect(&folder).await;
    connection.execute("create table orders (id integer primary key)").await.unwrap();
    connection.close().await.unwrap();
    let without = verify(&folder, &[]);
    assert_eq!((without.code, without.out.as_str()), (Some(1), ""), "{without:?}");
    insta::assert_snapshot!("no_ledger", without.err);
}

#[test]
fn invalid_arguments_exit_with_2() {
    for (arguments, words) in [
        (&["audit"][..], "Usage: postrider audit <COMMAND>"),
        (&["audit", "verify"], "--db <PATH|URL>"),
        (&["audit", "verify", "--db", "shop.db", "--pinned", "17"], "64 hexadecimal digits"),
    ] {
        let ended = run(&mut postrider(arguments));
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{arguments:?}: {ended:?}");
        assert!(ended.err.contains(words), "{arguments:?}: {ended:?}");
    }
}
