//! SQLite: the store, and the same guarantees in hand-written SQL.

mod files;
mod ours;
mod reference;

pub(crate) use files::Files;
pub(crate) use ours::Ours;
pub(crate) use reference::{QUEUE, Reference, SIGNAL};

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use std::time::Duration;

/// A connection for writes, with the store's default durability.
pub(crate) fn writing(path: &str) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(30))
}
