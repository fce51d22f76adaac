//! A PostgreSQL server with a database for each side, dropped when the benchmark ends.

use crate::{
    backend::{Backend, Tuples, Used},
    cpu::Server,
    side::Side,
    wire::Wire,
};
use anyhow::{Context, Result};
use async_trait::async_trait;
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection, Row,
    postgres::{PgConnectOptions, PgSslMode},
};
use std::{env, str::FromStr, time::Duration};

const URL: &str = "POSTRIDER_BENCH_POSTGRES_URL";

/// The server, and the databases that are created in it.
#[derive(Debug)]
pub(crate) struct Databases {
    options: PgConnectOptions,
    server: Server,
    version: String,
    admin: PgConnection,
    made: Vec<String>,
}

impl Databases {
    /// The server that the environment names.
    pub(crate) async fn connect() -> Result<Self> {
        let url =
            env::var(URL).with_context(|| format!("{URL} names no server; run `cargo xtask bench store`"))?;
        let server = Server::named();
        let options = PgConnectOptions::from_str(&url)?.ssl_mode(PgSslMode::Disable);
        let mut admin = PgConnection::connect_with(&options).await.context("connecting to the server")?;
        let row = sqlx::query("select current_setting('server_version')").fetch_one(&mut admin).await?;
        // Packagers append their own version.
        let version: String = row.try_get(0)?;
        let version = version.split_whitespace().next().unwrap_or_default().to_owned();
        Ok(Self { options, server, version, admin, made: Vec::new() })
    }
}

/// A URL that every driver can read.
fn url(options: &PgConnectOptions) -> String {
    let url = options.to_url_lossy().to_string();
    format!("{}?sslmode=disable", url.split('?').next().unwrap_or(&url))
}

#[async_trait]
impl Backend for Databases {
    fn title(&self) -> String {
        format!("PostgreSQL {}", self.version)
    }

    fn version(&self) -> &str {
        &self.version
    }

    async fn database(&mut self, side: &dyn Side) -> Result<String> {
        let database = format!("bench_{}_{}", side.name(), std::process::id());
        let url = url(&self.options.clone().database(&database));
        if !self.made.contains(&database) {
            self.admin.execute(AssertSqlSafe(format!("create database \"{database}\""))).await?;
            self.made.push(database);
            side.create(&url).await.with_context(|| format!("making the tables of {}", side.name()))?;
        }
        Ok(url)
    }

    async fn wired(&self, address: &str) -> Result<Option<(Wire, String)>> {
        let wire = Wire::to(self.options.get_host(), self.options.get_port()).await?;
        let through = PgConnectOptions::from_str(address)?.host("127.0.0.1").port(wire.port());
        Ok(Some((wire, url(&through))))
    }

    async fn used(&mut self) -> Result<Used> {
        let row = sqlx::query("select (pg_current_wal_insert_lsn() - '0/0')::bigint")
            .fetch_one(&mut self.admin)
            .await?;
        Ok(Used { wal: row.try_get(0)?, server: self.server.cpu() })
    }

    async fn empty(&mut self, side: &dyn Side, url: &str) -> Result<Tuples> {
        let table = side.table();
        self.wait_until_left().await?;
        let mut connection = PgConnection::connect(url).await?;
        connection.execute(AssertSqlSafe(format!("truncate {table}"))).await?;
        connection.execute("checkpoint").await?;
        let tuples = tuples(&mut connection, table).await?;
        connection.close().await?;
        Ok(tuples)
    }

    async fn outcome(&mut self, side: &dyn Side, url: &str) -> Result<(Tuples, i64)> {
        let table = side.table();
        self.wait_until_left().await?;
        let mut connection = PgConnection::connect(url).await?;
        let tuples = tuples(&mut connection, table).await?;
        let left =
            connection.fetch_one(AssertSqlSafe(format!("select count(*) from {table}"))).await?.try_get(0)?;
        connection.close().await?;
        Ok((tuples, left))
    }

    async fn remove(mut self: Box<Self>) -> Result<()> {
        for database in &self.made {
            self.admin
                .execute(AssertSqlSafe(format!("drop database if exists \"{database}\" with (force)")))
                .await?;
        }
        Ok(self.admin.close().await?)
    }
}

impl Databases {
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
