//! The backend of a comparison: a PostgreSQL server, or a folder with SQLite files.

use crate::{side::Side, wire::Wire};
use anyhow::Result;
use async_trait::async_trait;
use std::time::Duration;

/// A backend with a database for each kind of side.
#[async_trait]
pub(crate) trait Backend: Send {
    /// The name and version of the backend.
    fn title(&self) -> String;

    /// The version of the database.
    fn version(&self) -> &str;

    /// The URL of the side's database, which is created on first use.
    async fn database(&mut self, side: &dyn Side) -> Result<String>;

    /// Empties the side's database, including dead pages and the log.
    async fn empty(&mut self, side: &dyn Side, url: &str) -> Result<Tuples>;

    /// The statistics of the side's table so far, and the number of rows left.
    async fn outcome(&mut self, side: &dyn Side, url: &str) -> Result<(Tuples, i64)>;

    /// The resources that the database has used so far.
    async fn used(&mut self) -> Result<Used>;

    /// A proxy in front of the database that counts round trips, and the URL of the database through it.
    async fn wired(&self, url: &str) -> Result<Option<(Wire, String)>>;

    /// Removes everything.
    async fn remove(self: Box<Self>) -> Result<()>;
}

/// The table's statistics, if there are any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuples {
    pub(crate) updated: i64,
    pub(crate) hot: i64,
    pub(crate) deleted: i64,
}

/// The resources that a database has used, as far as they are known.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// Bytes of write-ahead log.
    pub(crate) wal: Option<i64>,
    /// The server's CPU time.
    pub(crate) server: Option<Duration>,
}
