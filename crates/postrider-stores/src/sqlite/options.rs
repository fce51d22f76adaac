//! The options of a store.

use super::SqliteNames;
use postrider_core::Limits;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// How long the driver itself waits for a lock before the writer retries with a backoff.
const DRIVER_BUSY_TIMEOUT: Duration = Duration::from_millis(10);

/// The options of a [`SqliteStore`](super::SqliteStore).
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    pub(super) path: PathBuf,
    pub(super) names: SqliteNames,
    pub(super) limits: Limits,
    pub(super) busy_timeout: Duration,
    pub(super) readers: u32,
    durability: Durability,
    max_pages: Option<u32>,
}

/// The durability of the store's commits. Your own transactions use the settings of your own connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Commits survive a power loss: every commit is flushed to the disk.
    #[default]
    Full,
    /// Commits survive a crash of the process. A power loss may undo the last commits: messages that they settled are redelivered.
    Normal,
}

impl SqliteOptions {
    /// The file at `path`, with default options. It is created if it is missing.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            names: SqliteNames::default(),
            limits: Limits::default(),
            busy_timeout: Duration::from_secs(30),
            readers: 4,
            durability: Durability::Full,
            max_pages: None,
        }
    }

    /// The names of the tables. Default: the prefix `postrider_`.
    #[must_use]
    pub fn with_names(mut self, names: SqliteNames) -> Self {
        self.names = names;
        self
    }

    /// The size limits of [`SqliteStore::outbox`](super::SqliteStore::outbox).
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The busy timeout: how long a write waits for other writers. Default: 30 seconds.
    #[must_use]
    pub fn with_busy_timeout(mut self, busy_timeout: Duration) -> Self {
        self.busy_timeout = busy_timeout;
        self
    }

    /// The durability of commits. Default: [`Durability::Full`].
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The maximum number of read-only connections. Default: 4.
    #[must_use]
    pub fn with_readers(mut self, readers: u32) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// Limits the file to this number of pages, for tests of a full disk.
    #[doc(hidden)]
    #[must_use]
    pub fn with_max_pages(mut self, pages: u32) -> Self {
        self.max_pages = Some(pages);
        self
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The options of the writing connection. Write-ahead logging lets readers read during a write.
    pub(super) fn writer_options(&self) -> SqliteConnectOptions {
        let synchronous = match self.durability {
            Durability::Full => SqliteSynchronous::Full,
            Durability::Normal => SqliteSynchronous::Normal,
        };
        let options = SqliteConnectOptions::new()
            .filename(&self.path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous)
            .busy_timeout(DRIVER_BUSY_TIMEOUT);
        match self.max_pages {
            Some(pages) => options.pragma("max_page_count", pages.to_string()),
            None => options,
        }
    }

    /// The options of a read-only connection. In write-ahead mode it waits only for the recovery of the log after a crash.
    pub(super) fn reader_options(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .pragma("query_only", "on")
            .busy_timeout(self.busy_timeout)
    }
}
