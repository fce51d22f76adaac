//! The SQL, TOML and systemd blocks of the guides are accepted by what they are written for.

#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use postrider::{postgres::PostgresStore, schema::Schema, sqlite::SqliteStore};
use postrider_testkit::{
    documents::{self, Block},
    postgres::TestDatabase,
    tls::{Certificates, Signer},
};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool, raw_sql};
use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};
use support::program::{postrider, run};
use tempfile::tempdir;

/// The table of a reader's own that the statements name.
const ORDERS: &str = "create table orders (id bigint primary key, paid boolean not null default false)";

/// The blocks of a language, each with the name of its page.
fn blocks(language: &str) -> Vec<(String, Block)> {
    let pages = documents::pages().into_iter();
    let blocks = pages.flat_map(|page| {
        let name = page.name.clone();
        page.blocks().into_iter().map(move |block| (name.clone(), block))
    });
    blocks.filter(|(_, block)| block.language == language).collect()
}

/// Runs statements as a reader does, one after the other: some cannot run within a transaction.
fn psql(url: &str, sql: &str) -> Result<(), String> {
    // psql does not accept the parameters of our driver.
    let url = url.split('?').next().unwrap();
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url]);
    psql.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = psql.spawn().unwrap();
    child.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Each block runs on a new database. What it stages is counted: a statement may succeed and do nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql_blocks_run_as_printed() {
    let (mut postgres, mut sqlite) = (0, 0);
    for (page, Block { text, .. }) in blocks("sql") {
        let stages = text.contains("postrider.stage(") || text.contains("outbox (");
        let count = "select count(*) from";
        let staged: i64 = if text.contains("postrider_") {
            sqlite += 1;
            let folder = tempdir().unwrap();
            let file = folder.path().join("shop.db");
            let store = SqliteStore::open(&file).await.unwrap();
            store.migrate().await.unwrap();
            let pool = SqlitePool::connect(&format!("sqlite:{}", file.display())).await.unwrap();
            raw_sql(ORDERS).execute(&pool).await.unwrap();
            let statements = raw_sql(AssertSqlSafe(text.clone()));
            statements.execute(&pool).await.unwrap_or_else(|error| panic!("{page}: {error}\n{text}"));
            let table = AssertSqlSafe(format!("{count} postrider_ready"));
            sqlx::query_scalar(table).fetch_one(&pool).await.unwrap()
        } else {
            postgres += 1;
            let database = TestDatabase::empty().await;
            let store = PostgresStore::connect(database.url()).await.unwrap();
            store.migrate().await.unwrap();
            let pool = PgPool::connect(database.url()).await.unwrap();
            raw_sql(ORDERS).execute(&pool).await.unwrap();
            psql(database.url(), &text).unwrap_or_else(|error| panic!("{page}: {error}\n{text}"));
            let table = AssertSqlSafe(format!("{count} postrider.ready"));
            let staged = sqlx::query_scalar(table).fetch_one(&pool).await.unwrap();
            store.close().await;
            pool.close().await;
            staged
        };
        assert_eq!(staged > 0, stages, "{page} staged {staged} messages\n{text}");
    }
    assert!(postgres >= 4 && sqlite >= 3, "{postgres} blocks for PostgreSQL, {sqlite} for SQLite");
}

/// Blocks with some tables of a configuration file, completed by the tables that they leave out. `config.rs` checks the whole file
/// of the daemon's guide.
#[test]
fn excerpts_of_the_configuration_file_are_valid() {
    let blocks = blocks("toml");
    let excerpts: Vec<_> = blocks
        .iter()
        .filter(|(_, block)| block.text.contains("[databases.") && !block.text.contains("source = "))
        .collect();
    assert!(!excerpts.is_empty(), "no block was found");
    // The program reads a CA bundle.
    let certificates = Certificates::issue();
    let bundle = certificates.authority(Signer::Bundle).display().to_string();
    for (page, Block { text, .. }) in excerpts {
        let route = "queue = \"orders\"\nto = [{ destination = \"hooks\", address = \"orders\" }]\n";
        let file =
            format!("source = \"/shop\"\n{text}[destinations.hooks]\nkind = \"stdout\"\n[[routes]]\n{route}")
                .replace("/etc/ssl/database-ca.pem", &bundle);
        let folder = tempdir().unwrap();
        fs::write(folder.path().join("postrider.toml"), &file).unwrap();
        let mut command = postrider(&["config", "check"]);
        let checked = run(command.current_dir(folder.path()).env("SHOP_DB", "postgres://db.example/shop"));
        assert_eq!(checked.code, Some(0), "{page}: {checked:?}\n{file}");
    }
}

/// The program accepts the arguments that the unit file gives to it.
#[test]
fn command_of_the_systemd_unit_is_accepted() {
    let units = blocks("ini");
    let [(page, unit)] = &units[..] else { panic!("expected one unit file: {units:?}") };
    let command = unit.text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/postrider "));
    let command = command.unwrap_or_else(|| panic!("{page} starts no postrider"));
    let arguments: Vec<&str> = command.split(' ').chain(["--help"]).collect();
    let started = run(&mut postrider(&arguments));
    assert_eq!(started.code, Some(0), "{started:?}");
}
