//! The schema of the SQLite store: migrations, validation, repair, printing.

#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/sqlite.rs"]
mod support;

use postrider_core::{
    ClaimRequest, Error, Message, OutboxExt, Store,
    schema::{AppliedMigration, PendingMigration, Schema},
};
use postrider_stores::sqlite::{SqliteNames, SqliteOptions, SqliteStore};
use sqlx::{AssertSqlSafe, Executor, Row, SqlitePool};
use std::time::{Duration, SystemTime};
use support::SqliteFixture;
use tokio::task::JoinSet;

/// `expected.txt` describes a freshly migrated database. `UPDATE_EXPECTED=1` rewrites it.
#[tokio::test]
async fn expected_schema_matches_fresh_migration() {
    let fixture = SqliteFixture::new().await;
    let described = fixture.store.describe().await.unwrap();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/expected.txt");
    // The table of applied migrations belongs to the driver.
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

/// Each breakage, and the object that validation must report.
const BREAKAGES: [(&str, &str); 17] = [
    ("drop table postrider_scheduled", "table scheduled"),
    ("drop index postrider_ready_free", "index ready_free"),
    (
        "drop trigger postrider_new_message_ready; drop trigger postrider_new_message_scheduled; \
         alter table postrider_queue drop column signals",
        "column queue.signals",
    ),
    ("alter table postrider_lane rename column expired_leases to expiries", "column lane.expired_leases"),
    (
        "drop index postrider_ready_leased; \
         create index postrider_ready_leased on postrider_ready (queue, lease_until)",
        "index ready_leased",
    ),
    (
        "drop table postrider_idle; create table postrider_idle (queue text, worker blob, until integer)",
        "table idle",
    ),
    ("drop table postrider_inbox", "table inbox"),
    ("drop index postrider_inbox_admitted", "index inbox_admitted"),
    ("drop table postrider_inbox_count", "table inbox_count"),
    ("drop index postrider_scheduled_subject", "index scheduled_subject"),
    ("drop table postrider_ledger", "table ledger"),
    ("drop trigger postrider_ledger_delete", "trigger ledger_delete"),
    ("drop view postrider_outbox", "view outbox"),
    ("drop view postrider_outbox", "trigger outbox_insert"),
    ("drop view postrider_contract; create view postrider_contract as select 2 as version", "view contract"),
    ("drop trigger postrider_new_message_extended", "trigger new_message_extended"),
    (
        "drop trigger postrider_new_message_scheduled; create trigger postrider_new_message_scheduled \
         instead of insert on postrider_new_message when new.outcome = 'scheduled' begin select 1; end",
        "trigger new_message_scheduled",
    ),
];

#[tokio::test]
async fn validate_reports_every_missing_or_altered_object() {
    for (breakage, object) in BREAKAGES {
        let fixture = SqliteFixture::new().await;
        assert_eq!(fixture.store.validate().await.unwrap(), []);
        fixture.run(breakage).await;
        let drift = fixture.store.validate().await.unwrap();
        assert!(drift.iter().any(|drift| drift.object == object), "{breakage}: {drift:?}");
    }
}

/// A second round is needed where other objects depend on a table that is rebuilt.
#[tokio::test]
async fn suggested_fixes_repair_every_breakage() {
    for (breakage, _) in BREAKAGES {
        let fixture = SqliteFixture::new().await;
        fixture.run(breakage).await;
        for _ in 0..2 {
            let mut applied = Vec::new();
            for drift in fixture.store.validate().await.unwrap() {
                let fix = drift.fix.as_ref().unwrap_or_else(|| panic!("{breakage}: {drift} has no fix"));
                if !applied.contains(fix) {
                    let done = fixture.app.execute(AssertSqlSafe(fix.clone())).await;
                    done.unwrap_or_else(|error| panic!("{breakage}: {error}: {fix}"));
                    applied.push(fix.clone());
                }
            }
        }
        assert_eq!(fixture.store.validate().await.unwrap(), [], "{breakage}");
    }
}

#[tokio::test]
async fn validate_ignores_additional_objects() {
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
async fn concurrent_migrations_all_succeed() {
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

#[tokio::test]
async fn migrations_report_number_name_and_time_of_applied_and_pending() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path).await.unwrap();
    let before = store.migrations().await.unwrap();
    assert_eq!(before.applied, []);
    assert_eq!(before.pending, [PendingMigration { number: 1, name: "initial".to_owned() }]);
    assert_eq!(before.needed, 1);

    store.migrate().await.unwrap();
    let app = SqlitePool::connect(&format!("sqlite:{}", path.display())).await.unwrap();
    app.execute("update postrider_migration set installed_on = '2026-03-01 12:00:00+00:00'").await.unwrap();
    let noon = SystemTime::UNIX_EPOCH + Duration::from_secs(1_772_366_400);
    let initial = AppliedMigration { number: 1, name: "initial".to_owned(), at: noon };
    let after = store.migrations().await.unwrap();
    assert_eq!((after.applied, after.pending, after.needed), (vec![initial.clone()], vec![], 1));

    // A newer program has migrated further.
    app.execute(
        "insert into postrider_migration select 1000, 'tomorrow', installed_on, success, checksum, execution_time \
         from postrider_migration",
    )
    .await
    .unwrap();
    let newer = store.migrations().await.unwrap();
    let tomorrow = AppliedMigration { number: 1000, name: "tomorrow".to_owned(), at: noon };
    assert_eq!((newer.applied, newer.pending, newer.needed), (vec![initial, tomorrow], vec![], 1));

    app.execute("delete from postrider_migration where version = 1").await.unwrap();
    assert_eq!(store.migrations().await.unwrap().pending, before.pending);
}

#[tokio::test]
async fn printed_statements_create_the_same_schema() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("shop.db")).await.unwrap();
    let app =
        SqlitePool::connect(&format!("sqlite:{}", folder.path().join("shop.db").display())).await.unwrap();
    app.execute(AssertSqlSafe(store.print())).await.unwrap();
    assert_eq!(store.validate().await.unwrap(), []);
}

#[tokio::test]
async fn stores_with_different_prefixes_share_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let app = SqlitePool::connect(&format!("sqlite:{}?mode=rwc", path.display())).await.unwrap();
    let mut stores = Vec::new();
    for prefix in ["", "b_"] {
        let names = SqliteNames::new(prefix).unwrap();
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
async fn missing_tables_fail_with_advice_to_migrate() {
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
        "the transaction is still usable"
    );
}

#[tokio::test]
async fn check_constraints_reject_incomplete_leases_and_leased_rows_of_ordered_queues() {
    let fixture = SqliteFixture::new().await;
    for bad in [
        "insert into postrider_ready (queue, message_id, token, staged_at, due_at, payload) \
         values (1, randomblob(16), randomblob(16), 0, 0, x'')",
        "insert into postrider_ready (queue, message_id, ordered, key, token, lease_until, staged_at, due_at, payload) \
         values (1, randomblob(16), 1, 'k', randomblob(16), 1, 0, 0, x'')",
        "insert into postrider_lane (queue, key, turn, token) values (1, 'k', 1, randomblob(16))",
        "insert into postrider_ready (queue, message_id, staged_at, due_at, payload) values (1, x'00', 0, 0, x'')",
    ] {
        let refused = fixture.app.execute(bad).await.unwrap_err();
        assert!(refused.to_string().contains("CHECK constraint failed"), "{bad}: {refused}");
    }
}
