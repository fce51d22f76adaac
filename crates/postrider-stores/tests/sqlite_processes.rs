//! Several processes share one file. This test program starts itself again as a child process.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
mod support;

use postrider_core::{
    ClaimRequest, Message, Outbox, OutboxExt, Store,
    notifier::{IdleWorker, Notifier},
};
use postrider_stores::sqlite::SqliteStore;
use sqlx::{
    SqlitePool,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use support::SqliteFixture;
use uuid::Uuid;

/// The path of the file, for a child process.
const FILE: &str = "POSTRIDER_TEST_SQLITE_FILE";
const MESSAGES: usize = 20_000;
const PROCESSES: usize = 2;

/// Both stage ten thousand messages and both claim and settle: each message is delivered once, and no call fails because of a lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_deliver_each_message_once() {
    let fixture = SqliteFixture::new().await;
    let mut others: Vec<Child> =
        (0..PROCESSES).map(|_| spawn("child_process_stages_and_delivers", &fixture.path())).collect();
    for other in &mut others {
        assert!(other.wait().unwrap().success(), "a process failed; its output is above");
    }
    let mut seen = HashSet::new();
    for row in
        sqlx::query_as::<_, (String,)>("select id from delivered").fetch_all(&fixture.app).await.unwrap()
    {
        assert!(seen.insert(row.0), "delivered twice");
    }
    assert_eq!(seen.len(), MESSAGES, "no message is lost");
    let (left,): (i64,) =
        sqlx::query_as("select count(*) from postrider_ready").fetch_one(&fixture.app).await.unwrap();
    assert_eq!(left, 0);
}

/// The body of a child process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn child_process_stages_and_delivers() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let store = SqliteStore::open(&path).await.unwrap();
    let app = pool(&path).await;
    sqlx::query("create table if not exists delivered (id text primary key)").execute(&app).await.unwrap();
    let producer = tokio::spawn({
        let (app, outbox) = (app.clone(), store.outbox());
        async move {
            for _ in 0..MESSAGES / PROCESSES / 20 {
                let batch = vec![Message::builder("orders").payload("{}").build().unwrap(); 20];
                let mut tx = app.begin().await.unwrap();
                outbox.stage_all(&mut tx, &batch).await.unwrap();
                tx.commit().await.unwrap();
            }
        }
    });
    let request = ClaimRequest::new("orders".parse().unwrap(), 100).with_lease_for(Duration::from_secs(600));
    let began = Instant::now();
    let mut empty = 0;
    // The other process may still be staging: only a long idle time is the end.
    while empty < 200 {
        assert!(began.elapsed() < Duration::from_secs(55), "it takes too long");
        let claimed = store.claim(&request).await.unwrap();
        if claimed.is_empty() {
            empty += usize::from(producer.is_finished());
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        empty = 0;
        let mut tx = app.begin_with("begin immediate").await.unwrap();
        for each in &claimed {
            let insert = sqlx::query("insert into delivered (id) values (?1)").bind(each.id().to_string());
            insert.execute(&mut *tx).await.unwrap();
        }
        tx.commit().await.unwrap();
        let done: Vec<_> = claimed.iter().map(|each| each.lease.done()).collect();
        assert_eq!(store.settle(&done).await.unwrap(), []);
    }
    producer.await.unwrap();
}

/// A commit of another process notifies an idle worker of this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_in_another_process_notifies_idle_worker() {
    let fixture = SqliteFixture::new().await;
    let queue = "orders".parse().unwrap();
    let idle = IdleWorker { worker: Uuid::now_v7(), queues: vec![queue] };
    fixture.store.register_idle(&idle, Duration::from_secs(600)).await.unwrap();
    let mut listener = fixture.store.listen(&idle.queues).await.unwrap();
    let mut other = spawn("child_process_stages_one_message", &fixture.path());
    let queue = tokio::time::timeout(Duration::from_secs(20), listener.wait()).await.unwrap().unwrap();
    assert_eq!(queue, idle.queues[0]);
    assert!(other.wait().unwrap().success());
}

/// The body of a child process.
#[tokio::test]
#[ignore = "the body of a child process"]
async fn child_process_stages_one_message() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let store = SqliteStore::open(&path).await.unwrap();
    let mut tx = pool(&path).await.begin().await.unwrap();
    store.outbox().stage(&mut tx, Message::builder("orders")).await.unwrap();
    tx.commit().await.unwrap();
}

/// A process that is killed in the middle of its work leaves no partial change, and others can use the file immediately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_process_leaves_no_partial_change() {
    let fixture = SqliteFixture::new().await;
    for _ in 0..5 {
        let mut other = spawn("child_process_stages_until_killed", &fixture.path());
        tokio::time::sleep(Duration::from_millis(700)).await;
        other.kill().unwrap();
        other.wait().unwrap();
        let (staged, noted): (i64, i64) = sqlx::query_as(
            "select (select count(*) from postrider_ready), (select coalesce(sum(messages), 0) from noted)",
        )
        .fetch_one(&fixture.app)
        .await
        .unwrap();
        assert_eq!(staged, noted, "messages and the application's rows commit together");
    }
    let request = ClaimRequest::new("orders".parse().unwrap(), 10);
    assert_eq!(fixture.store.claim(&request).await.unwrap().len(), 10);
}

/// The body of a child process.
#[tokio::test]
#[ignore = "the body of a child process"]
async fn child_process_stages_until_killed() {
    let Some(path) = std::env::var_os(FILE).map(PathBuf::from) else { return };
    let store = SqliteStore::open(&path).await.unwrap();
    let app = pool(&path).await;
    sqlx::query("create table if not exists noted (messages integer)").execute(&app).await.unwrap();
    loop {
        let mut tx = app.begin().await.unwrap();
        let batch = vec![Message::builder("orders").payload("{}").build().unwrap(); 100];
        store.outbox().stage_all(&mut tx, &batch).await.unwrap();
        sqlx::query("insert into noted (messages) values (100)").execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }
}

fn spawn(test: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--ignored", "--nocapture"])
        .env(FILE, path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

async fn pool(path: &Path) -> SqlitePool {
    let connect = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_secs(30));
    SqlitePoolOptions::new().max_connections(4).connect_with(connect).await.unwrap()
}
