//! A folder with a file for each side, recreated before each turn and removed when the benchmark ends.

use super::writing;
use crate::{
    backend::{Backend, Tuples, Used},
    side::Side,
    wire::Wire,
};
use anyhow::{Context, Result};
use async_trait::async_trait;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row, SqliteConnection};
use std::{fs, io};
use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Files {
    folder: TempDir,
    version: String,
}

impl Files {
    pub(crate) async fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("postrider-bench-").tempdir()?;
        let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
        let version = connection.fetch_one("select sqlite_version()").await?.try_get(0)?;
        Ok(Self { folder, version })
    }
}

#[async_trait]
impl Backend for Files {
    fn title(&self) -> String {
        format!("SQLite {}, write-ahead log, synchronous = full", self.version)
    }

    fn version(&self) -> &str {
        &self.version
    }

    async fn database(&mut self, side: &dyn Side) -> Result<String> {
        let path = self.folder.path().join(side.name()).with_extension("db");
        Ok(path.to_str().context("a temporary folder whose path is not text")?.to_owned())
    }

    async fn empty(&mut self, side: &dyn Side, path: &str) -> Result<Tuples> {
        for suffix in ["", "-wal", "-shm"] {
            match fs::remove_file(format!("{path}{suffix}")) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        side.create(path).await.with_context(|| format!("making the tables of {}", side.name()))?;
        Ok(Tuples::default())
    }

    async fn outcome(&mut self, side: &dyn Side, path: &str) -> Result<(Tuples, i64)> {
        let mut connection = writing(path).connect().await?;
        let count = format!("select count(*) from {}", side.table());
        let left = connection.fetch_one(AssertSqlSafe(count)).await?.try_get(0)?;
        connection.close().await?;
        Ok((Tuples::default(), left))
    }

    /// There is no server.
    async fn used(&mut self) -> Result<Used> {
        Ok(Used::default())
    }

    async fn wired(&self, _: &str) -> Result<Option<(Wire, String)>> {
        Ok(None)
    }

    async fn remove(self: Box<Self>) -> Result<()> {
        self.folder.close().context("removing the files")
    }
}
