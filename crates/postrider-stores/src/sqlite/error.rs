//! Classification of driver errors by what the caller can do.

use postrider_core::{BoxError, Error};
use std::path::Path;

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
/// A transaction read, another one wrote, and the first tries to write: waiting does not help, a new transaction does.
const BUSY_SNAPSHOT: i32 = 517;

/// An error of SQLite with advice.
#[derive(Debug, thiserror::Error)]
#[error("{advice} ({source})")]
struct AdvisedError {
    advice: String,
    source: BoxError,
}

/// The remedy for an error: what the caller can do.
enum Remedy {
    Retry,
    Advice(&'static str),
    /// The tables do not match this version. The text is SQLite's.
    Migrate(String),
    Unknown,
}

/// Classifies an error of sqlx.
pub(super) fn store_error(error: sqlx::Error) -> Error {
    remedy(&error).error(error.into())
}

/// Classifies an error of another driver by its cause.
#[cfg(feature = "sea-orm")]
pub(super) fn classify(cause: &sqlx::Error, error: impl Into<BoxError>) -> Error {
    remedy(cause).error(error.into())
}

impl Remedy {
    fn error(self, source: BoxError) -> Error {
        match self {
            Self::Retry => Error::Unavailable(source),
            Self::Advice(advice) => {
                Error::Unavailable(Box::new(AdvisedError { advice: advice.to_owned(), source }))
            }
            Self::Migrate(message) => Error::SchemaMismatch(message),
            Self::Unknown => Error::Other(source),
        }
    }
}

fn remedy(error: &sqlx::Error) -> Remedy {
    use sqlx::Error as E;
    let Some(code) = code(error) else {
        return match error {
            E::Io(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) => Remedy::Retry,
            _ => Remedy::Unknown,
        };
    };
    Remedy::Advice(match code & 0xff {
        1 if is_missing(error) => return Remedy::Migrate(message(error)),
        BUSY if code == BUSY_SNAPSHOT => {
            "the transaction read before it wrote, and another has written since: roll it back and run it again, and \
             begin it with BEGIN IMMEDIATE"
        }
        BUSY | LOCKED => "another transaction holds the database's write lock: end it, or try again",
        7 => "SQLite is out of memory",
        8 => "the database cannot be written: give this process write access to the file and its directory",
        9 => "the statement was interrupted",
        10 => "the disk could not be read or written, and nothing was changed",
        13 => "the disk or the database is full, and nothing was changed: free some space",
        14 => {
            "the database file cannot be opened: check that its directory exists and that this process may write to it"
        }
        _ => return Remedy::Unknown,
    })
}

/// Classifies an error of opening `path`, and names the path.
pub(super) fn open_error(path: &Path, error: sqlx::Error) -> Error {
    match store_error(error) {
        Error::Unavailable(source) => Error::Unavailable(format!("{}: {source}", path.display()).into()),
        Error::Other(source) => Error::Other(format!("{}: {source}", path.display()).into()),
        other => other,
    }
}

/// Whether waiting may help: another transaction holds a lock.
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
