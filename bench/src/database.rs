//! A database for one side, gone when the benchmark ends.

use anyhow::{Context, Result};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row,
    postgres::{PgConnectOptions, PgSslMode},
};
use std::{str::FromStr, time::Duration};

/// The server, and the databases that are made in it.
#[derive(Debug)]
pub(crate) struct Databases {
    options: PgConnectOptions,
    admin: PgConnection,
    made: Vec<String>,
}

/// What the tables' statistics say that happened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuples {
    pub(crate) updated: i64,
    pub(crate) hot: i64,
    pub(crate) deleted: i64,
}

impl Databases {
    pub(crate) async fn connect(url: &str) -> Result<Self> {
        let options = PgConnectOptions::from_str(url)?.ssl_mode(PgSslMode::Disable);
        let admin = PgConnection::connect_with(&options).await.context("connecting to the server")?;
        Ok(Self { options, admin, made: Vec::new() })
    }

    pub(crate) async fn version(&mut self) -> Result<String> {
        let row = sqlx::query("select current_setting('server_version')").fetch_one(&mut self.admin).await?;
        // Packagers add their own words.
        let version: String = row.try_get(0)?;
        Ok(version.split_whitespace().next().unwrap_or_default().to_owned())
    }

    pub(crate) fn server(&self) -> (String, u16) {
        (self.options.get_host().to_owned(), self.options.get_port())
    }

    /// Makes a database and answers with its URL.
    pub(crate) async fn make(&mut self, name: &str) -> Result<String> {
        let database = format!("bench_{name}_{}", std::process::id());
        self.admin.execute(AssertSqlSafe(format!("create database \"{database}\""))).await?;
        let url = self.options.clone().database(&database).to_url_lossy().to_string();
        self.made.push(database);
        Ok(url)
    }

    /// The URL of a database through another port of this machine.
    pub(crate) fn through(url: &str, port: u16) -> Result<String> {
        let options = PgConnectOptions::from_str(url)?.host("127.0.0.1").port(port);
        Ok(options.to_url_lossy().to_string())
    }

    /// How far the write-ahead log has come, in bytes.
    pub(crate) async fn wal(&mut self) -> Result<i64> {
        let row = sqlx::query("select (pg_current_wal_insert_lsn() - '0/0')::bigint")
            .fetch_one(&mut self.admin)
            .await?;
        Ok(row.try_get(0)?)
    }

    /// Nothing of what passed is left on pages or in the log.
    pub(crate) async fn reset(&mut self, url: &str, table: &str) -> Result<Tuples> {
        self.wait_until_left().await?;
        let mut connection = PgConnection::connect(url).await?;
        connection.execute(AssertSqlSafe(format!("truncate {table}"))).await?;
        connection.execute("checkpoint").await?;
        let tuples = tuples(&mut connection, table).await?;
        connection.close().await?;
        Ok(tuples)
    }

    /// What happened in the table, once every connection has reported it; and how many rows are left.
    pub(crate) async fn outcome(&mut self, url: &str, table: &str) -> Result<(Tuples, i64)> {
        self.wait_until_left().await?;
        let mut connection = PgConnection::connect(url).await?;
        let tuples = tuples(&mut connection, table).await?;
        let left =
            connection.fetch_one(AssertSqlSafe(format!("select count(*) from {table}"))).await?.try_get(0)?;
        connection.close().await?;
        Ok((tuples, left))
    }

    /// A connection reports its statistics before it is gone.
    async fn wait_until_left(&mut self) -> Result<()> {
        loop {
            let present: i64 = sqlx::query(
                "select count(*) from pg_stat_activity \
                 where datname = any($1) and backend_type = 'client backend'",
            )
            .bind(&self.made)
            .fetch_one(&mut self.admin)
            .await?
            .try_get(0)?;
            if present == 0 {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Removes the databases.
    pub(crate) async fn remove(mut self) -> Result<()> {
        for database in &self.made {
            self.admin
                .execute(AssertSqlSafe(format!("drop database if exists \"{database}\" with (force)")))
                .await?;
        }
        Ok(self.admin.close().await?)
    }
}

async fn tuples(connection: &mut PgConnection, table: &str) -> Result<Tuples> {
    let row = sqlx::query(
        "select pg_stat_get_tuples_updated($1::text::regclass), pg_stat_get_tuples_hot_updated($1::text::regclass), \
           pg_stat_get_tuples_deleted($1::text::regclass)",
    )
    .bind(table)
    .fetch_one(connection)
    .await?;
    Ok(Tuples { updated: row.try_get(0)?, hot: row.try_get(1)?, deleted: row.try_get(2)? })
}
