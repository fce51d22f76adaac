//! The tables of the PostgreSQL store: migrations, validation, printing.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/migrations.rs"]
mod migrations;
#[path = "support/postgres.rs"]
mod support;

use postrider_core::{ClaimRequest, QueueName, Store, schema::Schema};
use postrider_stores::postgres::{Names, PostgresOptions, PostgresStore};
use postrider_testkit::postgres::TestDatabase;
use sqlx::{AssertSqlSafe, Executor};
use support::PostgresFixture;

/// `expected.txt` is what a fresh migration looks like; `UPDATE_EXPECTED=1` writes it anew.
#[tokio::test]
async fn a_fresh_migration_is_what_validation_expects() {
    let fixture = PostgresFixture::new().await;
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/expected.txt");
        std::fs::write(path, fixture.store.describe().await.unwrap()).unwrap();
        return;
    }
    assert_eq!(fixture.store.validate().await.unwrap(), []);
    assert_eq!(
        fixture.store.describe().await.unwrap(),
        include_str!("../src/postgres/expected.txt"),
        "run this test with UPDATE_EXPECTED=1"
    );
}

#[tokio::test]
async fn ten_processes_migrate_at_once() {
    let database = TestDatabase::empty().await;
    let mut processes = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let url = database.url().to_owned();
        processes.spawn(async move {
            let options = PostgresOptions::new(&url).unwrap().with_connections(2);
            let store = PostgresStore::open(options).await.unwrap();
            store.migrate().await.unwrap();
            assert_eq!(store.validate().await.unwrap(), []);
        });
    }
    while let Some(process) = processes.join_next().await {
        process.unwrap();
    }
}

#[tokio::test]
async fn another_schema_and_a_prefix_are_as_good() {
    let database = TestDatabase::empty().await;
    let options = PostgresOptions::new(database.url()).unwrap();
    let store = PostgresStore::open(options.with_names(Names::new("shop", "pr_").unwrap())).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.validate().await.unwrap(), []);
}

/// Each alteration, and the object that must be reported, as missing or as altered.
const ALTERATIONS: [(&str, &str, Found); 23] = [
    ("drop table postrider.schedule", "table schedule", Found::Nothing),
    ("drop table postrider.inbox", "table inbox", Found::Nothing),
    ("alter table postrider.inbox drop constraint inbox_pkey", "constraint inbox_pkey", Found::Nothing),
    ("drop index postrider.inbox_admitted", "index inbox_admitted", Found::Nothing),
    ("drop table postrider.inbox_count", "table inbox_count", Found::Nothing),
    (
        "alter table postrider.inbox_count drop constraint inbox_count_pkey",
        "constraint inbox_count_pkey",
        Found::Nothing,
    ),
    ("alter table postrider.ledger disable trigger ledger_stays", "trigger ledger_stays", Found::Else),
    ("drop trigger ledger_head_stays on postrider.ledger_head", "trigger ledger_head_stays", Found::Nothing),
    (
        "alter table postrider.ledger alter column subject drop expression",
        "column ledger.subject",
        Found::Else,
    ),
    ("drop table postrider.sleeper", "table sleeper", Found::Nothing),
    ("alter table postrider.ready drop column tenant", "column ready.tenant", Found::Nothing),
    ("alter table postrider.dead alter column attempts type bigint", "column dead.attempts", Found::Else),
    (
        "alter table postrider.ready alter column queue drop default, alter column ordered drop not null",
        "column ready.ordered",
        Found::Else,
    ),
    (
        "alter table postrider.ready alter column id set default nextval('postrider.place')",
        "column ready.id",
        Found::Else,
    ),
    ("drop index postrider.ready_key", "index ready_key", Found::Nothing),
    (
        "drop index postrider.lane_ring; create index lane_ring on postrider.lane (queue, seq)",
        "index lane_ring",
        Found::Else,
    ),
    (
        "drop index postrider.lane_due; create index lane_due on postrider.lane (queue, due) where due < 'infinity'",
        "index lane_due",
        Found::Else,
    ),
    (
        "alter table postrider.ready drop constraint ready_message; create index ready_message on postrider.ready (message_id, queue)",
        "index ready_message",
        Found::Else,
    ),
    ("alter table postrider.ready drop constraint ready_lease", "constraint ready_lease", Found::Nothing),
    (
        "alter table postrider.ready drop constraint ready_lease, add constraint ready_lease check (token is null or token is not null)",
        "constraint ready_lease",
        Found::Else,
    ),
    (
        "alter table postrider.ready reset (autovacuum_vacuum_scale_factor)",
        "option ready.autovacuum_vacuum_scale_factor",
        Found::Nothing,
    ),
    ("alter sequence postrider.place cache 100", "sequence place", Found::Else),
    (
        "create or replace function postrider.queue_id(p_name text) returns smallint language sql as 'select 1::smallint'",
        "function queue_id(p_name text)",
        Found::Else,
    ),
];

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Else,
}

#[tokio::test]
async fn every_missing_or_altered_object_is_reported() {
    let fixture = PostgresFixture::new().await;
    for (statement, object, found) in ALTERATIONS {
        let mut tx = fixture.app.begin().await.unwrap();
        sqlx::raw_sql(statement).execute(&mut *tx).await.unwrap();
        let drift = fixture.store.drift_in(&mut tx).await.unwrap();
        tx.rollback().await.unwrap();
        let reported = drift.iter().find(|drift| drift.object == object);
        let reported = reported.unwrap_or_else(|| panic!("{statement}: {object} is not in {drift:#?}"));
        assert_eq!(reported.found.is_none(), found == Found::Nothing, "{statement}: {reported}");
    }
    assert_eq!(fixture.store.validate().await.unwrap(), [], "the alterations were rolled back");
}

/// A second round is needed where something hangs on what is made anew.
#[tokio::test]
async fn the_printed_fixes_mend_every_alteration() {
    let fixture = PostgresFixture::new().await;
    let more = [
        "drop table postrider.ready, postrider.later, postrider.dead",
        "drop sequence postrider.place, postrider.turn cascade",
        "drop view postrider.outbox cascade",
        "drop function postrider.stage_many, postrider.contract",
        "drop function postrider.stage(text, bytea, text, text, text, text, text, jsonb, uuid, timestamptz, interval, text, text, text, text, text)",
        "drop table postrider.archive",
        "alter table postrider.dead set unlogged",
        "drop table postrider.timer; create view postrider.timer as select 1 as queue",
    ];
    let alterations = ALTERATIONS.iter().map(|(statement, ..)| *statement).chain(more);
    for statement in alterations {
        let mut tx = fixture.app.begin().await.unwrap();
        sqlx::raw_sql(statement).execute(&mut *tx).await.unwrap();
        for _ in 0..2 {
            let mut mended = Vec::new();
            for drift in fixture.store.drift_in(&mut tx).await.unwrap() {
                let fix = drift.fix.as_ref().unwrap_or_else(|| panic!("{statement}: {drift} is not mended"));
                if mended.contains(fix) {
                    continue;
                }
                // Not in a transaction, which is there to take it all back.
                let sql = fix.replace(" concurrently", "");
                let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await;
                done.unwrap_or_else(|error| panic!("{statement}: {error}: {fix}"));
                mended.push(fix.clone());
            }
        }
        assert_eq!(fixture.store.drift_in(&mut tx).await.unwrap(), [], "{statement}");
        tx.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn what_the_migrations_have_yet_to_make_is_left_to_them() {
    let fixture = PostgresFixture::new().await;
    let mut tx = fixture.app.begin().await.unwrap();
    let older = "drop table postrider.saga_log; delete from postrider.migration where version = 14; drop index postrider.ready_key";
    sqlx::raw_sql(older).execute(&mut *tx).await.unwrap();
    let drift = fixture.store.drift_in(&mut tx).await.unwrap();
    for drift in drift {
        let is_ours = drift.object == "index ready_key";
        assert_eq!(drift.fix.is_some(), is_ours, "{drift:?}");
    }
}

#[tokio::test]
async fn what_is_there_besides_is_ignored_and_nothing_is_changed() {
    let fixture = PostgresFixture::new().await;
    fixture.run("alter table postrider.ready add column mine text").await;
    fixture.run("create index mine_idx on postrider.ready (mine)").await;
    fixture.run("create table postrider.mine (id int)").await;
    let before = fixture.store.describe().await.unwrap();
    assert_eq!(fixture.store.validate().await.unwrap(), []);
    assert_eq!(fixture.store.describe().await.unwrap(), before);
}

#[tokio::test]
async fn an_unmigrated_database_says_what_to_do() {
    let database = TestDatabase::empty().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let request = ClaimRequest::new(QueueName::new("orders").unwrap(), 1);
    let error = store.claim(&request).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the schema does not fit this version: relation \"postrider.queue\" does not exist; run the migrations"
    );
    assert!(store.validate().await.unwrap().len() > 100, "everything is missing");
}

#[tokio::test]
async fn it_is_told_which_migrations_were_run() {
    let database = TestDatabase::empty().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let app = sqlx::PgPool::connect(database.url()).await.unwrap();
    migrations::are_told(&store, "postrider.migration", async |statement| {
        app.execute(AssertSqlSafe(statement)).await.unwrap();
    })
    .await;
}

/// The printed statements make the same tables as the migrations.
#[tokio::test]
async fn printed_statements_make_the_same_tables() {
    let database = TestDatabase::empty().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let app = sqlx::PgPool::connect(database.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(store.print())).execute(&app).await.unwrap();
    assert_eq!(store.validate().await.unwrap(), []);
}

/// A lease has an end, whoever writes it.
#[tokio::test]
async fn a_lease_without_an_end_is_refused_by_the_table() {
    let fixture = PostgresFixture::new().await;
    let statement = "with q as (select postrider.queue_id('orders') as id), r as (insert into postrider.ready (queue, \
        message_id, payload) select id, gen_random_uuid(), '' from q returning 1) select 1; \
        update postrider.ready set token = gen_random_uuid()";
    let error = sqlx::raw_sql(statement).execute(&fixture.app).await.unwrap_err();
    assert!(error.to_string().contains("ready_lease"), "{error}");
}
