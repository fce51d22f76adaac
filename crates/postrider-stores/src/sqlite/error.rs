//! What an error of the driver means to the caller.

use postrider_core::{Error, store::Source};
use std::path::Path;

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
/// A read that became a write while somebody else had written: waiting cannot help, beginning anew does.
const BUSY_SNAPSHOT: i32 = 517;

/// An error of SQLite, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{advice} ({source})")]
struct Advised {
    advice: String,
    source: Source,
}

/// What the caller can do next.
enum Next {
    TryAgain,
    Heed(&'static str),
    /// The tables are not what we need, in SQLite's words.
    Migrate(String),
    Nothing,
}

/// Sorts an error of sqlx by what the caller can do next.
pub(super) fn store_error(error: sqlx::Error) -> Error {
    next(&error).error(error.into())
}

/// Sorts an error of another driver by its cause.
#[cfg(feature = "sea-orm")]
pub(super) fn sorted(cause: &sqlx::Error, error: impl Into<Source>) -> Error {
    next(cause).error(error.into())
}

impl Next {
    fn error(self, source: Source) -> Error {
        match self {
            Self::TryAgain => Error::Unavailable(source),
            Self::Heed(advice) => Error::Unavailable(Box::new(Advised { advice: advice.to_owned(), source })),
            Self::Migrate(words) => Error::SchemaMismatch(words),
            Self::Nothing => Error::Other(source),
        }
    }
}

fn next(error: &sqlx::Error) -> Next {
    use sqlx::Error as E;
    let Some(code) = code(error) else {
        return match error {
            E::Io(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) => Next::TryAgain,
            _ => Next::Nothing,
        };
    };
    Next::Heed(match code & 0xff {
        1 if is_missing(error) => return Next::Migrate(message(error)),
        BUSY if code == BUSY_SNAPSHOT => {
            "the transaction read before it wrote, and another has written since: roll it back and run it again, and \
             begin it with BEGIN IMMEDIATE"
        }
        BUSY | LOCKED => "another transaction holds the database's write lock: end it, or try again",
        7 => "SQLite is out of memory",
        8 => "the database cannot be written: give this process write access to the file and its directory",
        9 => "the statement was interrupted",
        10 => "the disk could not be read or written, and nothing was changed",
        13 => "the disk or the database is full, and nothing was changed: make room",
        14 => {
            "the database file cannot be opened: check that its directory exists and that this process may write to it"
        }
        _ => return Next::Nothing,
    })
}

/// The same for opening `path`, which is named.
pub(super) fn open_error(path: &Path, error: sqlx::Error) -> Error {
    match store_error(error) {
        Error::Unavailable(source) => Error::Unavailable(format!("{}: {source}", path.display()).into()),
        Error::Other(source) => Error::Other(format!("{}: {source}", path.display()).into()),
        other => other,
    }
}

/// Whether waiting may help.
pub(super) fn is_busy(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|code| code != BUSY_SNAPSHOT && matches!(code & 0xff, BUSY | LOCKED))
}

/// The extended result code of SQLite.
pub(super) fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn message(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

fn is_missing(error: &sqlx::Error) -> bool {
    let message = message(error);
    ["no such table", "no such index", "no such column", "has no column named"]
        .iter()
        .any(|text| message.contains(text))
}
