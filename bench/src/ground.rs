//! Where a comparison takes place: a server of PostgreSQL, or a folder with files of SQLite.

use crate::{side::Side, wire::Wire};
use anyhow::Result;
use async_trait::async_trait;
use std::time::Duration;

/// A place for databases, one for each kind of side.
#[async_trait]
pub(crate) trait Ground: Send {
    /// What is measured, with its version.
    fn title(&self) -> String;

    /// The version of the database.
    fn version(&self) -> &str;

    /// The address of the side's database, which is made when it is first asked for.
    async fn database(&mut self, side: &dyn Side) -> Result<String>;

    /// Empties the side's database. Nothing of what passed is left on pages or in the log.
    async fn empty(&mut self, side: &dyn Side, url: &str) -> Result<Tuples>;

    /// What happened in the side's table so far, and how many rows are left.
    async fn outcome(&mut self, side: &dyn Side, url: &str) -> Result<(Tuples, i64)>;

    /// What the database has used so far.
    async fn used(&mut self) -> Result<Used>;

    /// A relay in front of the database that counts round trips, and the address of the database through it.
    async fn wired(&self, url: &str) -> Result<Option<(Wire, String)>>;

    /// Removes everything.
    async fn remove(self: Box<Self>) -> Result<()>;
}

/// What the table's statistics say that happened, where there are any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tuples {
    pub(crate) updated: i64,
    pub(crate) hot: i64,
    pub(crate) deleted: i64,
}

/// What a database has used, as far as it can be told.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// Bytes of write-ahead log.
    pub(crate) wal: Option<i64>,
    /// The server's processor time.
    pub(crate) server: Option<Duration>,
}
