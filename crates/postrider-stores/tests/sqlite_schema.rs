//! The tables of the SQLite store: migrations, validation, printing.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/migrations.rs"]
mod migrations;
#[path = "support/sqlite.rs"]
mod support;

use postrider_core::{ClaimRequest, Error, Message, OutboxExt, Store, schema::Schema};
use postrider_stores::sqlite::{Names, SqliteOptions, SqliteStore};
use sqlx::{AssertSqlSafe, Executor, Row, SqlitePool};
use support::SqliteFixture;
use tokio::task::JoinSet;

/// The file that validation compares with is the description of a fresh migration. With `UPDATE_EXPECTED=1` it is written anew.
#[tokio::test]
async fn what_is_expected_is_what_is_migrated() {
    let fixture = SqliteFixture::new().await;
    let described = fixture.store.describe().await.unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/expected.txt");
    // The driver's own table of migrations is the driver's.
    let described: String = described
        .lines()
        .filter(|line| !line.contains("migration"))
        .map(|line| format!("{line}\n"))
        .collect();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(path, &described).unwrap();
    }
    assert_eq!(described, std::fs::read_to_string(path).unwrap());
    assert!(described.lines().count() > 100);
}

/// Each breakage, and the object that must be reported.
const BREAKAGES: [(&str, &str); 17] = [
    ("drop table postrider_later", "table later"),
    ("drop index postrider_ready_free", "index ready_free"),
    (
        "drop trigger postrider_fresh_ready; drop trigger postrider_fresh_later; \
         alter table postrider_queue drop column signals",
        "column queue.signals",
    ),
    ("alter table postrider_lane rename column lapses to lapsed", "column lane.lapses"),
    (
        "drop index postrider_ready_leased; \
         create index postrider_ready_leased on postrider_ready (queue, lease_until)",
        "index ready_leased",
    ),
    (
        "drop table postrider_sleeper; create table postrider_sleeper (queue text, worker blob, until integer)",
        "table sleeper",
    ),
    ("drop table postrider_inbox", "table inbox"),
    ("drop index postrider_inbox_admitted", "index inbox_admitted"),
    ("drop table postrider_inbox_count", "table inbox_count"),
    ("drop index postrider_later_subject", "index later_subject"),
    ("drop table postrider_ledger", "table ledger"),
    ("drop trigger postrider_ledger_delete", "trigger ledger_delete"),
    ("drop view postrider_outbox", "view outbox"),
    ("drop view postrider_outbox", "trigger outbox_insert"),
    ("drop view postrider_contract; create view postrider_contract as select 2 as version", "view contract"),
    ("drop trigger postrider_fresh_extended", "trigger fresh_extended"),
    (
        "drop trigger postrider_fresh_later; create trigger postrider_fresh_later \
         instead of insert on postrider_fresh when new.fate = 'later' begin select 1; end",
        "trigger fresh_later",
    ),
];

#[tokio::test]
async fn every_missing_or_altered_object_is_reported() {
    for (breakage, object) in BREAKAGES {
        let fixture = SqliteFixture::new().await;
        assert_eq!(fixture.store.validate().await.unwrap(), []);
        fixture.run(breakage).await;
        let drift = fixture.store.validate().await.unwrap();
        assert!(drift.iter().any(|drift| drift.object == object), "{breakage}: {drift:?}");
    }
}

/// A second round is needed where something hangs on what is made anew.
#[tokio::test]
async fn the_printed_fixes_mend_every_breakage() {
    for (breakage, _) in BREAKAGES {
        let fixture = SqliteFixture::new().await;
        fixture.run(breakage).await;
        for _ in 0..2 {
            let mut mended = Vec::new();
            for drift in fixture.store.validate().await.unwrap() {
                let fix = drift.fix.as_ref().unwrap_or_else(|| panic!("{breakage}: {drift} is not mended"));
                if !mended.contains(fix) {
                    let done = fixture.app.execute(AssertSqlSafe(fix.clone())).await;
                    done.unwrap_or_else(|error| panic!("{breakage}: {error}: {fix}"));
                    mended.push(fix.clone());
                }
            }
        }
        assert_eq!(fixture.store.validate().await.unwrap(), [], "{breakage}");
    }
}

#[tokio::test]
async fn what_is_there_besides_is_ignored_and_nothing_is_changed() {
    let fixture = SqliteFixture::new().await;
    fixture
        .run(
            "create table orders (id integer primary key); alter table postrider_ready add column note text; \
             create index postrider_ready_note on postrider_ready (note); \
             create trigger noted after insert on postrider_ready begin select 1; end",
        )
        .await;
    assert_eq!(fixture.store.validate().await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_processes_migrate_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let mut processes = JoinSet::new();
    for _ in 0..10 {
        let path = path.clone();
        processes.spawn(async move {
            let store = SqliteStore::open(path).await.unwrap();
            store.migrate().await.unwrap();
            assert_eq!(store.validate().await.unwrap(), []);
        });
    }
    processes.join_all().await;
}

/// A file that an earlier version made gets what is new, and keeps what it holds.
#[tokio::test]
async fn an_earlier_file_is_brought_up_to_date() {
    let fixture = SqliteFixture::new().await;
    let mut tx = fixture.app.begin().await.unwrap();
    fixture.store.outbox().stage(&mut tx, Message::builder("orders").payload("kept")).await.unwrap();
    tx.commit().await.unwrap();
    let views = "select 'drop view \"' || name || '\"' from sqlite_schema where type = 'view'";
    for row in sqlx::query(views).fetch_all(&fixture.app).await.unwrap() {
        fixture.app.execute(AssertSqlSafe(row.get::<String, _>(0))).await.unwrap();
    }
    fixture.run("drop table postrider_schedule").await;
    fixture.run("drop table postrider_inbox").await;
    fixture.run("drop table postrider_inbox_count").await;
    fixture.run("drop table postrider_ledger").await;
    fixture.run("drop table postrider_ledger_head").await;
    fixture.run("drop table postrider_saga_log").await;
    fixture.run("drop table postrider_pause").await;
    fixture.run("drop index postrider_ready_subject; drop index postrider_later_subject").await;
    fixture.run("drop index postrider_dead_subject; drop index postrider_archive_subject").await;
    fixture.run("drop index postrider_dead_place").await;
    fixture.run("drop index postrider_ready_tenant").await;
    fixture.run("alter table postrider_ready drop column fair").await;
    fixture.run("alter table postrider_queue drop column fair").await;
    fixture.run("delete from postrider_migration where version > 1").await;
    assert!(!fixture.store.validate().await.unwrap().is_empty());
    fixture.store.migrate().await.unwrap();
    assert_eq!(fixture.store.validate().await.unwrap(), []);
    fixture.run("insert into postrider_outbox (queue, payload) values ('orders', 'new')").await;
    let claimed = fixture.store.claim(&ClaimRequest::new("orders".parse().unwrap(), 10)).await.unwrap();
    assert_eq!(claimed.len(), 2);
}

#[tokio::test]
async fn it_is_told_which_migrations_were_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let app = SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    migrations::are_told(&store, "postrider_migration", async |statement| {
        app.execute(AssertSqlSafe(statement)).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn printed_statements_make_the_same_tables() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("shop.db")).await.unwrap();
    let app =
        SqlitePool::connect(&format!("sqlite:{}", folder.path().join("shop.db").display())).await.unwrap();
    app.execute(AssertSqlSafe(store.print())).await.unwrap();
    assert_eq!(store.validate().await.unwrap(), []);
}

#[tokio::test]
async fn two_stores_share_a_file_under_two_prefixes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let app = SqlitePool::connect(&format!("sqlite:{}?mode=rwc", path.display())).await.unwrap();
    let mut stores = Vec::new();
    for prefix in ["", "b_"] {
        let names = Names::new(prefix).unwrap();
        let store = SqliteStore::open_with(SqliteOptions::new(&path).with_names(names)).await.unwrap();
        store.migrate().await.unwrap();
        assert_eq!(store.validate().await.unwrap(), []);
        let mut tx = app.begin().await.unwrap();
        let message = Message::builder("orders").payload(format!("in {prefix:?}"));
        store.outbox().stage(&mut tx, message).await.unwrap();
        tx.commit().await.unwrap();
        stores.push((store, format!("in {prefix:?}")));
    }
    for (store, payload) in stores {
        let claimed = store.claim(&ClaimRequest::new("orders".parse().unwrap(), 10)).await.unwrap();
        assert_eq!(claimed.len(), 1);
        assert_eq!(claimed[0].message.payload().as_ref(), payload.as_bytes());
    }
}

#[tokio::test]
async fn without_its_tables_a_store_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let request = ClaimRequest::new("orders".parse().unwrap(), 10);
    let error = store.claim(&request).await.unwrap_err();
    assert!(matches!(error, Error::SchemaMismatch(_)), "{error:?}");
    assert!(error.to_string().contains("run the migrations"), "{error}");

    let app = SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    let mut tx = app.begin().await.unwrap();
    let error = store.outbox().stage(&mut tx, Message::builder("orders")).await.unwrap_err();
    assert!(matches!(error, Error::SchemaMismatch(_)), "{error:?}");
    assert_eq!(
        sqlx::query("select 17").fetch_one(&mut *tx).await.unwrap().get::<i64, _>(0),
        17,
        "still usable"
    );
}

#[tokio::test]
async fn half_set_leases_and_leased_messages_of_ordered_queues_are_refused_by_the_tables() {
    let fixture = SqliteFixture::new().await;
    for bad in [
        "insert into postrider_ready (queue, message_id, token, staged_at, due_at, payload) \
         values (1, randomblob(16), randomblob(16), 0, 0, x'')",
        "insert into postrider_ready (queue, message_id, ordered, key, token, lease_until, staged_at, due_at, payload) \
         values (1, randomblob(16), 1, 'k', randomblob(16), 1, 0, 0, x'')",
        "insert into postrider_lane (queue, key, turn_at, token) values (1, 'k', 1, randomblob(16))",
        "insert into postrider_ready (queue, message_id, staged_at, due_at, payload) values (1, x'00', 0, 0, x'')",
    ] {
        let refused = fixture.app.execute(bad).await.unwrap_err();
        assert!(refused.to_string().contains("CHECK constraint failed"), "{bad}: {refused}");
    }
}
