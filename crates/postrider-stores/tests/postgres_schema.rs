//! The schema of the PostgreSQL store: migrations, upgrades, validation, printing.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/migrations.rs"]
mod migrations;
#[path = "support/postgres.rs"]
mod support;

use postrider_core::{ClaimRequest, QueueName, Store, schema::Schema};
use postrider_stores::postgres::{PostgresNames, PostgresOptions, PostgresStore};
use postrider_testkit::postgres::TestDatabase;
use sqlx::{AssertSqlSafe, Executor};
use support::PostgresFixture;

/// `expected.txt` is the catalog of a fresh migration; `UPDATE_EXPECTED=1` rewrites it.
#[tokio::test]
async fn fresh_migration_matches_expected_catalog() {
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
async fn ten_concurrent_migrations_succeed() {
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
async fn migration_with_other_schema_and_prefix_validates() {
    let database = TestDatabase::empty().await;
    let options = PostgresOptions::new(database.url()).unwrap();
    let store =
        PostgresStore::open(options.with_names(PostgresNames::new("shop", "pr_").unwrap())).await.unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.validate().await.unwrap(), []);
}

/// Each alteration, and the object that must be reported, as missing or as altered.
const ALTERATIONS: [(&str, &str, Reported); 23] = [
    ("drop table postrider.schedule", "table schedule", Reported::Missing),
    ("drop table postrider.inbox", "table inbox", Reported::Missing),
    ("alter table postrider.inbox drop constraint inbox_pkey", "constraint inbox_pkey", Reported::Missing),
    ("drop index postrider.inbox_admitted", "index inbox_admitted", Reported::Missing),
    ("drop table postrider.inbox_count", "table inbox_count", Reported::Missing),
    (
        "alter table postrider.inbox_count drop constraint inbox_count_pkey",
        "constraint inbox_count_pkey",
        Reported::Missing,
    ),
    (
        "alter table postrider.ledger disable trigger ledger_append_only",
        "trigger ledger_append_only",
        Reported::Altered,
    ),
    (
        "drop trigger ledger_head_permanent on postrider.ledger_head",
        "trigger ledger_head_permanent",
        Reported::Missing,
    ),
    (
        "alter table postrider.ledger alter column subject drop expression",
        "column ledger.subject",
        Reported::Altered,
    ),
    ("drop table postrider.idle", "table idle", Reported::Missing),
    ("alter table postrider.ready drop column tenant", "column ready.tenant", Reported::Missing),
    (
        "alter table postrider.dead alter column attempts type bigint",
        "column dead.attempts",
        Reported::Altered,
    ),
    (
        "alter table postrider.ready alter column queue drop default, alter column ordered drop not null",
        "column ready.ordered",
        Reported::Altered,
    ),
    (
        "alter table postrider.ready alter column id set default nextval('postrider.message_position')",
        "column ready.id",
        Reported::Altered,
    ),
    ("drop index postrider.ready_key", "index ready_key", Reported::Missing),
    (
        "drop index postrider.lane_ring; create index lane_ring on postrider.lane (queue, turn)",
        "index lane_ring",
        Reported::Altered,
    ),
    (
        "drop index postrider.lane_due; create index lane_due on postrider.lane (queue, due_at) where due_at < 'infinity'",
        "index lane_due",
        Reported::Altered,
    ),
    (
        "drop index postrider.ready_message; create index ready_message on postrider.ready (message_id, queue)",
        "index ready_message",
        Reported::Altered,
    ),
    ("alter table postrider.ready drop constraint ready_lease", "constraint ready_lease", Reported::Missing),
    (
        "alter table postrider.ready drop constraint ready_lease, add constraint ready_lease check (token is null or token is not null)",
        "constraint ready_lease",
        Reported::Altered,
    ),
    (
        "alter table postrider.ready reset (autovacuum_vacuum_scale_factor)",
        "option ready.autovacuum_vacuum_scale_factor",
        Reported::Missing,
    ),
    ("alter sequence postrider.message_position cache 100", "sequence message_position", Reported::Altered),
    (
        "create or replace function postrider.queue_id(p_name text) returns smallint language sql as 'select 1::smallint'",
        "function queue_id(p_name text)",
        Reported::Altered,
    ),
];

#[derive(Debug, PartialEq, Eq)]
enum Reported {
    Missing,
    Altered,
}

#[tokio::test]
async fn validate_reports_every_missing_or_altered_object() {
    let fixture = PostgresFixture::new().await;
    for (statement, object, expected) in ALTERATIONS {
        let mut tx = fixture.app.begin().await.unwrap();
        sqlx::raw_sql(statement).execute(&mut *tx).await.unwrap();
        let drift = fixture.store.drift_in(&mut tx).await.unwrap();
        tx.rollback().await.unwrap();
        let reported = drift.iter().find(|drift| drift.object == object);
        let reported = reported.unwrap_or_else(|| panic!("{statement}: {object} is not in {drift:#?}"));
        assert_eq!(reported.found.is_none(), expected == Reported::Missing, "{statement}: {reported}");
    }
    assert_eq!(fixture.store.validate().await.unwrap(), [], "the alterations were rolled back");
}

/// Objects that depend on a recreated one need a second round.
#[tokio::test]
async fn printed_fixes_repair_every_alteration() {
    let fixture = PostgresFixture::new().await;
    let more = [
        "drop table postrider.ready, postrider.scheduled, postrider.dead",
        "drop sequence postrider.message_position, postrider.turn cascade",
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
            let mut applied = Vec::new();
            for drift in fixture.store.drift_in(&mut tx).await.unwrap() {
                let fix = drift.fix.as_ref().unwrap_or_else(|| panic!("{statement}: {drift} has no fix"));
                if applied.contains(fix) {
                    continue;
                }
                // The test runs in a transaction, in which `concurrently` is impossible.
                let sql = fix.replace(" concurrently", "");
                let done = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *tx).await;
                done.unwrap_or_else(|error| panic!("{statement}: {error}: {fix}"));
                applied.push(fix.clone());
            }
        }
        assert_eq!(fixture.store.drift_in(&mut tx).await.unwrap(), [], "{statement}");
        tx.rollback().await.unwrap();
    }
}

#[tokio::test]
async fn drift_of_pending_migration_has_no_fix() {
    let fixture = PostgresFixture::new().await;
    let mut tx = fixture.app.begin().await.unwrap();
    let pending = "drop table postrider.saga_log; delete from postrider.migration where version = 1";
    sqlx::raw_sql(pending).execute(&mut *tx).await.unwrap();
    let drift = fixture.store.drift_in(&mut tx).await.unwrap();
    assert!(drift.iter().any(|drift| drift.object == "table saga_log"), "{drift:?}");
    assert!(drift.iter().all(|drift| drift.fix.is_none()), "{drift:?}");
}

#[tokio::test]
async fn validate_ignores_extra_objects_and_changes_nothing() {
    let fixture = PostgresFixture::new().await;
    fixture.run("alter table postrider.ready add column mine text").await;
    fixture.run("create index mine_idx on postrider.ready (mine)").await;
    fixture.run("create table postrider.mine (id int)").await;
    let before = fixture.store.describe().await.unwrap();
    assert_eq!(fixture.store.validate().await.unwrap(), []);
    assert_eq!(fixture.store.describe().await.unwrap(), before);
}

#[tokio::test]
async fn claim_on_unmigrated_database_is_schema_mismatch() {
    let database = TestDatabase::empty().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let request = ClaimRequest::new(QueueName::new("orders").unwrap(), 1);
    let error = store.claim(&request).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the schema does not fit this version: relation \"postrider.queue\" does not exist; run the migrations"
    );
    assert!(store.validate().await.unwrap().len() > 100, "every object is missing");
}

#[tokio::test]
async fn migrations_reports_applied_and_pending() {
    let database = TestDatabase::empty().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let app = sqlx::PgPool::connect(database.url()).await.unwrap();
    migrations::check_reported(&store, "postrider.migration", async |statement| {
        app.execute(AssertSqlSafe(statement)).await.unwrap();
    })
    .await;
}

/// A row in every table, as version 1 has them.
const ROWS: &str = "
select postrider.declare_queue('orders', true, 'block', interval '1 day', true, false);
select postrider.stage('orders', 'one', key => 'k', subject => 's');
select postrider.stage('orders', 'two', timer => 't', due_after => interval '1 hour');
insert into postrider.dead (id, staged_at, due_at, message_id, attempts, deliveries, queue, ordered, payload, reason)
  select nextval('postrider.message_position'), now(), now(), gen_random_uuid(), 1, 1, q.id, true, 'three', 'rejected' from postrider.queue q;
insert into postrider.archive (id, staged_at, due_at, expires_at, message_id, attempts, deliveries, queue, ordered, payload)
  select 1001, now(), now(), d.at, gen_random_uuid(), 0, 1, q.id, true, 'four'
  from postrider.queue q, (values (now() + interval '1 day'), (now() + interval '1 year')) d(at);
insert into postrider.lane (queue, key, after) select q.id, 'k', 0 from postrider.queue q;
insert into postrider.idle (queue, worker, until) select q.id, gen_random_uuid(), now() from postrider.queue q;
insert into postrider.inbox_count (counted_at, message_id, deliveries, consumer, tenant) values (now(), gen_random_uuid(), 1, 'billing', '');
select * from postrider.admit('billing', array[''], array[gen_random_uuid()]);
select postrider.append_ledger(array['{\"id\": \"0196e4c5-0000-7000-8000-000000000001\", \"subject\": \"s\"}']);
insert into postrider.saga_log (saga, n, body) values (gen_random_uuid(), 0, '{}');
insert into postrider.schedule (name, last_at) values ('nightly', now());
select postrider.pause_work('destination', 'billing', 'nell', 'maintenance');
";

/// A next version: a new column with an index, and a change of data.
const NEXT: (i64, &str, &str) = (
    2,
    "region",
    "alter table {ready} add column region text;\n\
     create index {#ready_region} on {ready} (region) where region is not null;\n\
     update {ready} set region = 'eu';",
);

/// For each table: the number of its rows, and a digest of their contents without the new column.
async fn contents(app: &sqlx::PgPool) -> Vec<(String, i64, String)> {
    let tables: Vec<(String,)> = sqlx::query_as(
        "select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace \
         where n.nspname = 'postrider' and c.relkind in ('r', 'p') and not c.relispartition \
           and c.relname <> 'migration' order by c.relname",
    )
    .fetch_all(app)
    .await
    .unwrap();
    let mut contents = Vec::new();
    for (table,) in tables {
        let sql = format!(
            "select count(*), coalesce(md5(string_agg(r.text, ',' order by r.text)), '') \
             from (select (to_jsonb(t) - 'region')::text as text from postrider.{table} t) r"
        );
        let (count, digest) = sqlx::query_as(AssertSqlSafe(sql)).fetch_one(app).await.unwrap();
        contents.push((table, count, digest));
    }
    contents
}

#[tokio::test]
async fn upgrade_to_next_version_keeps_rows_of_every_table() {
    let database = TestDatabase::empty().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let app = sqlx::PgPool::connect(database.url()).await.unwrap();
    store.migrate().await.unwrap();
    sqlx::raw_sql(ROWS).execute(&app).await.unwrap();
    let before = contents(&app).await;
    assert!(before.len() > 10 && before.iter().all(|(_, count, _)| *count > 0), "{before:?}");

    store.migrate_with(&[NEXT]).await.unwrap();
    assert_eq!(contents(&app).await, before);
    let (upgraded,): (i64,) = sqlx::query_as("select count(*) from postrider.ready where region = 'eu'")
        .fetch_one(&app)
        .await
        .unwrap();
    assert_eq!(upgraded, 1);

    let migrations = store.migrations().await.unwrap();
    let applied = migrations.applied.iter().map(|applied| (applied.number, applied.name.as_str()));
    assert_eq!(applied.collect::<Vec<_>>(), [(1, "initial"), (2, "region")]);
    assert_eq!(migrations.pending, []);
    assert_eq!(store.validate().await.unwrap(), [], "an older program works with the upgraded schema");
    store.migrate_with(&[NEXT]).await.unwrap();
    assert_eq!(contents(&app).await, before, "a second run changes nothing");
}

/// The printed SQL creates the same tables as the migrations.
#[tokio::test]
async fn printed_sql_creates_same_tables_as_migration() {
    let database = TestDatabase::empty().await;
    let store = PostgresStore::connect(database.url()).await.unwrap();
    let app = sqlx::PgPool::connect(database.url()).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(store.print())).execute(&app).await.unwrap();
    assert_eq!(store.validate().await.unwrap(), []);
}

#[tokio::test]
async fn token_without_lease_end_violates_constraint() {
    let fixture = PostgresFixture::new().await;
    let statement = "with q as (select postrider.queue_id('orders') as id), r as (insert into postrider.ready (queue, \
        message_id, payload) select id, gen_random_uuid(), '' from q returning 1) select 1; \
        update postrider.ready set token = gen_random_uuid()";
    let error = sqlx::raw_sql(statement).execute(&fixture.app).await.unwrap_err();
    assert!(error.to_string().contains("ready_lease"), "{error}");
}
