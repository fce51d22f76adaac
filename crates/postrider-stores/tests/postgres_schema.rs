//! The tables of the PostgreSQL store: migrations, validation, printing.

#[path = "support/postgres.rs"]
mod support;

use postrider_core::schema::Schema;
use postrider_stores::postgres::{Names, PostgresOptions, PostgresStore};
use postrider_testkit::postgres::TestDatabase;
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
