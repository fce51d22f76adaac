//! How a store is opened.

use super::Names;
use postrider_core::Limits;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// How long the driver itself waits for a lock, before the writer steps back and tries again.
const DRIVER_WAITS: Duration = Duration::from_millis(10);

/// How to open a [`SqliteStore`](super::SqliteStore).
#[derive(Debug, Clone)]
pub struct SqliteOptions {
    pub(super) path: PathBuf,
    pub(super) names: Names,
    pub(super) limits: Limits,
    pub(super) patience: Duration,
    pub(super) readers: u32,
    durability: Durability,
    most_pages: Option<u32>,
}

/// What a commit of the store survives. Your own transactions follow the settings of your own connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Power loss: every commit is flushed to the disk.
    #[default]
    Full,
    /// The death of the process. After power loss the last commits may be undone, all of them or from some moment on: what
    /// was settled since is delivered again.
    Normal,
}

impl SqliteOptions {
    /// The file at `path`, which is made when it is missing, with the default names.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            names: Names::default(),
            limits: Limits::default(),
            patience: Duration::from_secs(30),
            readers: 4,
            durability: Durability::Full,
            most_pages: None,
        }
    }

    /// Names the tables otherwise.
    #[must_use]
    pub fn with_names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Moves the size limits of [`SqliteStore::outbox`](super::SqliteStore::outbox).
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Waits so long for other writers before it gives up. Half a minute by default.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Chooses between safety and speed. Flushed to the disk by default.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Opens up to so many connections for looking. Four by default.
    #[must_use]
    pub fn with_readers(mut self, readers: u32) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// Lets the file grow to so many pages, as a full disk would.
    #[doc(hidden)]
    #[must_use]
    pub fn with_most_pages(mut self, pages: u32) -> Self {
        self.most_pages = Some(pages);
        self
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The writer's connection. Write-ahead logging lets readers read while somebody writes.
    pub(super) fn writing(&self) -> SqliteConnectOptions {
        let synchronous = match self.durability {
            Durability::Full => SqliteSynchronous::Full,
            Durability::Normal => SqliteSynchronous::Normal,
        };
        let options = SqliteConnectOptions::new()
            .filename(&self.path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(synchronous)
            .busy_timeout(DRIVER_WAITS);
        match self.most_pages {
            Some(pages) => options.pragma("max_page_count", pages.to_string()),
            None => options,
        }
    }

    /// A connection that never writes. In write-ahead mode it waits for nobody but a process that mends the file after a crash.
    pub(super) fn reading(&self) -> SqliteConnectOptions {
        SqliteConnectOptions::new()
            .filename(&self.path)
            .pragma("query_only", "on")
            .busy_timeout(self.patience)
    }
}
