//! A full disk, a file that cannot be written, a lock that is held too long, a dropped future: the error says what to do, and
//! nothing is lost.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
mod support;

use postrider_core::{
    ClaimRequest, Error, Lease, Message, Outbox, OutboxExt, QueuePolicy, Store, TxBackend, inspect::Inspect,
    schema::Schema,
};
use postrider_stores::sqlite::{SqliteOptions, SqliteStore};
use postrider_testkit::Fixture;
use sqlx::{
    Executor, Row, Sqlite, SqlitePool, Transaction,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions},
};
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};
use support::SqliteFixture;

fn orders() -> ClaimRequest {
    ClaimRequest::new("orders".parse().unwrap(), 100)
}

fn message() -> Message {
    Message::builder("orders").payload("x".repeat(1_000)).build().unwrap()
}

async fn stage(fixture: &SqliteFixture, count: usize) {
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, &vec![message(); count]).await.unwrap();
    fixture.commit(tx).await;
}

/// On a full disk, staging fails and stages nothing; the caller's transaction can still be rolled back, and earlier messages are
/// delivered.
#[tokio::test]
async fn staging_on_a_full_disk_fails_atomically_with_advice() {
    let fixture = SqliteFixture::new().await;
    stage(&fixture, 10).await;
    let mut connection = fixture.app.acquire().await.unwrap();
    connection.execute("pragma max_page_count = 1").await.unwrap();
    let mut tx = sqlx::Connection::begin(&mut *connection).await.unwrap();
    let error = fixture.outbox().stage_all(&mut tx, &vec![message(); 1_000]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(error.to_string().contains("full"), "{error}");
    tx.rollback().await.unwrap();

    let claimed = fixture.store.claim(&orders()).await.unwrap();
    assert_eq!(claimed.len(), 10);
    let done: Vec<_> = claimed.iter().map(|each| each.lease.done()).collect();
    assert_eq!(fixture.store.settle(&done).await.unwrap(), []);
}

/// All messages of a call are staged or none, even if a later part fails: other changes of the transaction stay.
#[tokio::test]
async fn failed_stage_call_stages_nothing_and_leaves_the_transaction_usable() {
    let fixture = SqliteFixture::new().await;
    fixture
        .run(
            "create trigger picky before insert on postrider_ready when new.payload = x'626164' \
             begin select raise(abort, 'refused'); end",
        )
        .await;
    let mut batch = vec![message(); 100];
    batch.push(Message::builder("orders").payload("bad").build().unwrap());
    let mut tx = fixture.begin().await;
    fixture.outbox().stage(&mut tx, message()).await.unwrap();
    assert!(fixture.outbox().stage_all(&mut tx, &batch).await.is_err());
    fixture.outbox().stage(&mut tx, message()).await.unwrap();
    fixture.commit(tx).await;
    assert_eq!(fixture.store.claim(&orders()).await.unwrap().len(), 2);
}

/// A settlement on a full disk changes nothing, and succeeds when there is space again.
#[tokio::test]
async fn settle_on_a_full_disk_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let fixture = SqliteFixture::new().await;
    let store = SqliteStore::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    let keeping = QueuePolicy::default().with_keep_for(Duration::from_secs(60));
    store.declare(&"orders".parse().unwrap(), &keeping).await.unwrap();
    let app = SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    let mut tx = app.begin().await.unwrap();
    fixture.outbox().stage_all(&mut tx, &vec![message(); 500]).await.unwrap();
    tx.commit().await.unwrap();
    let claimed = store.claim(&ClaimRequest::new("orders".parse().unwrap(), 500)).await.unwrap();
    let done: Vec<_> = claimed.iter().map(|each| each.lease.done()).collect();

    // Moving five hundred messages to the archive needs pages before it frees any.
    let full = SqliteStore::open_with(SqliteOptions::new(&path).with_max_pages(1)).await.unwrap();
    let error = full.settle(&done).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)) && error.to_string().contains("full"), "{error}");
    let counts = store.counts().await.unwrap();
    let counts = counts.values().next().unwrap();
    assert_eq!((counts.leased.at_least, counts.done.at_least), (500, 0));
    assert_eq!(store.settle(&done).await.unwrap(), []);
}

/// If the file cannot be created, the error names it and says what to check.
#[tokio::test]
async fn error_of_a_file_that_cannot_be_created_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("no such folder").join("shop.db");
    let error = SqliteStore::open(&missing).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    assert!(
        error.to_string().contains("no such folder") && error.to_string().contains("directory"),
        "{error}"
    );

    let text = folder.path().join("letter.txt");
    fs::write(&text, "Dear Ada, this is a letter and not a database. ".repeat(100)).unwrap();
    let error = SqliteStore::open(&text).await.unwrap_err();
    assert!(error.to_string().contains("letter.txt"), "{error}");
    assert!(fs::read_to_string(text).unwrap().starts_with("Dear Ada"), "the file is unchanged");
}

/// A read-only file: opening or writing fails with advice, and the file stays unchanged.
#[cfg(unix)]
#[tokio::test]
async fn read_only_file_fails_with_advice_and_stays_unchanged() {
    use std::os::unix::{fs::PermissionsExt, process::CommandExt};
    const FILE: &str = "POSTRIDER_TEST_READ_ONLY_FILE";
    if let Some(path) = std::env::var_os(FILE).map(PathBuf::from) {
        let error = match SqliteStore::open(&path).await {
            Err(error) => error,
            Ok(store) => store.claim(&orders()).await.unwrap_err(),
        };
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        assert!(error.to_string().contains("write"), "{error}");
        return;
    }
    let fixture = SqliteFixture::new().await;
    stage(&fixture, 10).await;
    fixture.app.close().await;
    fixture.store.close().await;
    let before = fs::read(fixture.path()).unwrap();
    fs::set_permissions(fixture.path(), fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(fixture.folder.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let mut other = std::process::Command::new(std::env::current_exe().unwrap());
    other.args(["read_only_file_fails_with_advice_and_stays_unchanged", "--exact"]).env(FILE, fixture.path());
    // Root may write anywhere, so the child process runs as another user.
    let is_root = fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0);
    if is_root {
        other.uid(65_534);
    }
    let output = other.output().unwrap();
    fs::set_permissions(fixture.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(fs::read(fixture.path()).unwrap(), before);
}

/// A write fails after the busy timeout; reads, and claims that find nothing due, do not need the lock.
#[tokio::test]
async fn write_lock_held_longer_than_busy_timeout_fails() {
    let fixture = SqliteFixture::open(|options| options.with_busy_timeout(Duration::from_millis(300))).await;
    stage(&fixture, 1).await;
    let claimed = fixture.store.claim(&orders()).await.unwrap();
    let holder = fixture.app.begin_with("begin immediate").await.unwrap();
    assert_eq!(fixture.store.claim(&orders()).await.unwrap(), [], "nothing is due");
    assert_eq!(fixture.store.counts().await.unwrap().len(), 1);
    let began = Instant::now();
    let error = fixture.store.settle(&[claimed[0].lease.done()]).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)) && error.to_string().contains("lock"), "{error}");
    assert!(began.elapsed() >= Duration::from_millis(300), "{:?}", began.elapsed());
    holder.rollback().await.unwrap();
    assert_eq!(fixture.store.settle(&[claimed[0].lease.done()]).await.unwrap(), []);
}

/// A transaction that read before another one wrote cannot wait: the error says how to begin it instead.
#[tokio::test]
async fn stale_read_transaction_fails_with_advice_to_begin_immediate() {
    let fixture = SqliteFixture::new().await;
    let mut tx = fixture.begin().await;
    tx.execute("select count(*) from postrider_ready").await.unwrap();
    stage(&fixture, 1).await;
    let began = Instant::now();
    let error = fixture.outbox().stage(&mut tx, message()).await.unwrap_err();
    assert!(began.elapsed() < Duration::from_secs(5), "it does not wait");
    assert!(error.to_string().contains("BEGIN IMMEDIATE"), "{error}");
}

/// Calls whose futures are dropped at any time leave no partial change, and the store stays usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_future_leaves_no_partial_change() {
    let fixture = SqliteFixture::new().await;
    stage(&fixture, 300).await;
    for step in 0..200_u64 {
        let limit = Duration::from_micros(step * 20);
        let claimed = tokio::time::timeout(limit, fixture.store.claim(&orders())).await;
        if let Ok(Ok(claimed)) = claimed {
            let done: Vec<_> = claimed.iter().map(|each| each.lease.release()).collect();
            let _ = tokio::time::timeout(limit, fixture.store.settle(&done)).await;
        }
        let mut tx = fixture.begin().await;
        let staging = fixture.outbox();
        // Messages with a key take the other path of staging.
        let letter = Message::builder("letters");
        let letter = if step % 2 == 0 { letter } else { letter.key("k") };
        let batch = vec![letter.build().unwrap(); 100];
        let staged = tokio::time::timeout(limit, staging.stage_all(&mut tx, &batch)).await;
        let before = count(&fixture, "letters").await;
        fixture.commit(tx).await;
        let added = count(&fixture, "letters").await - before;
        assert!(added == 0 || added == 100, "all messages of a call or none: {added}");
        assert!(!matches!(staged, Ok(Ok(_))) || added == 100, "a reported success is committed");
    }
    fixture.advance(Duration::from_secs(3600)).await;
    let claimed = fixture.store.claim(&ClaimRequest::new("orders".parse().unwrap(), 1_000)).await.unwrap();
    assert_eq!(claimed.len(), 300, "no message is lost");
}

async fn count(fixture: &SqliteFixture, queue: &'static str) -> i64 {
    let sql =
        "select count(*) from postrider_ready where queue = (select id from postrider_queue where name = ?1)";
    sqlx::query(sql).bind(queue).fetch_one(&fixture.app).await.unwrap().get(0)
}

/// A pool of one connection, whose file is full, and the message that a handler has claimed.
async fn full_disk(fixture: &SqliteFixture) -> (SqlitePool, Lease) {
    fixture.run("create table effect (content blob)").await;
    stage(fixture, 1).await;
    let lease = fixture.store.claim(&orders()).await.unwrap().remove(0).lease;
    let options = SqliteConnectOptions::new().filename(fixture.path());
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
    pool.execute("pragma max_page_count = 1").await.unwrap();
    (pool, lease)
}

/// SQLite rolls the whole transaction back.
async fn fail_to_write(tx: &mut Transaction<'static, Sqlite>) {
    let failed = tx.execute("insert into effect values (zeroblob(1000000))").await.unwrap_err();
    assert!(failed.to_string().contains("full"), "{failed}");
}

/// The handler succeeds when there is space again: neither its effect nor the message is lost.
async fn succeed(pool: &SqlitePool, fixture: &SqliteFixture, lease: &Lease) {
    pool.execute("pragma max_page_count = 1000000").await.unwrap();
    let transactions = fixture.store.transactions(pool.clone());
    let mut tx = transactions.begin().await.unwrap();
    tx.execute("insert into effect values (x'00')").await.unwrap();
    assert!(transactions.settle_in(&mut tx, &lease.done()).await.unwrap(), "the message is still leased");
    transactions.commit(tx).await.unwrap();
    let effects = sqlx::query("select count(*) from effect").fetch_one(pool).await.unwrap();
    assert_eq!(effects.get::<i64, _>(0), 1);
}

/// A handler that ignores the error of a full disk fails, in a worker and in a consumer: SQLite has rolled its transaction back.
#[tokio::test]
async fn handler_that_swallows_a_full_disk_fails_and_loses_nothing() {
    for is_consumer in [false, true] {
        let fixture = SqliteFixture::new().await;
        let (pool, lease) = full_disk(&fixture).await;
        let transactions = fixture.store.transactions(pool.clone());
        let mut tx = transactions.begin().await.unwrap();
        fail_to_write(&mut tx).await;
        let failed = if is_consumer {
            transactions.verify(&mut tx).await
        } else {
            transactions.settle_in(&mut tx, &lease.done()).await.map(|_| ())
        };
        let failed = failed.unwrap_err();
        // Counted, unlike what is unavailable: the handler is at fault.
        assert!(matches!(failed, Error::Other(_)), "{failed:?}");
        assert!(failed.to_string().contains("rolled the transaction back"), "{failed}");
        drop(tx);
        succeed(&pool, &fixture, &lease).await;
    }
}

/// The connection of a transaction that SQLite has rolled back can be used again.
#[tokio::test]
async fn handler_that_reports_a_full_disk_leaves_the_pool_usable() {
    let fixture = SqliteFixture::new().await;
    let (pool, lease) = full_disk(&fixture).await;
    let transactions = fixture.store.transactions(pool.clone());
    let mut tx = transactions.begin().await.unwrap();
    fail_to_write(&mut tx).await;
    transactions.rollback(tx).await.unwrap();
    succeed(&pool, &fixture, &lease).await;
}

/// Nested transactions of the handler do not touch the mark of the outer one.
#[tokio::test]
async fn verify_succeeds_after_nested_transactions_of_the_handler() {
    let fixture = SqliteFixture::new().await;
    fixture.run("create table effect (content blob)").await;
    let transactions = fixture.store.transactions(fixture.app.clone());
    let mut tx = transactions.begin().await.unwrap();
    let nested = sqlx::Acquire::begin(&mut tx).await.unwrap();
    nested.commit().await.unwrap();
    let nested = sqlx::Acquire::begin(&mut tx).await.unwrap();
    nested.rollback().await.unwrap();
    transactions.verify(&mut tx).await.unwrap();
    transactions.verify(&mut tx).await.unwrap();
    tx.execute("insert into effect values (x'00')").await.unwrap();
    transactions.commit(tx).await.unwrap();
    let effects = sqlx::query("select count(*) from effect").fetch_one(&fixture.app).await.unwrap();
    assert_eq!(effects.get::<i64, _>(0), 1);
}
