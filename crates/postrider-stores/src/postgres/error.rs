//! What an error of a driver means to the caller.

use postrider_core::{Error, store::Source};

/// What the caller can do next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    TryAgain,
    /// The tables are not what we need, in the server's words.
    Migrate(String),
    Nothing,
}

impl Next {
    /// By the code that the server gave.
    pub(super) fn by_code(code: &str, message: &str) -> Self {
        match code {
            // undefined table, column, function, object or schema
            "42P01" | "42703" | "42883" | "42704" | "3F000" => Self::Migrate(message.to_owned()),
            // connection and resource trouble, shutdown, serialization failure, deadlock, lock and statement timeouts
            code if code.starts_with("08")
                || code.starts_with("53")
                || code.starts_with("57P")
                || matches!(code, "40001" | "40P01" | "55P03" | "57014" | "25P02" | "25006") =>
            {
                Self::TryAgain
            }
            _ => Self::Nothing,
        }
    }

    /// After an error of sqlx.
    pub(super) fn after(error: &sqlx::Error) -> Self {
        use sqlx::Error as E;
        match error {
            E::Database(db) => Self::by_code(db.code().as_deref().unwrap_or(""), db.message()),
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) => {
                Self::TryAgain
            }
            _ => Self::Nothing,
        }
    }

    /// The store's error, with its cause.
    pub(super) fn error(self, source: impl Into<Source>) -> Error {
        match self {
            Self::TryAgain => Error::Unavailable(source.into()),
            Self::Migrate(message) => Error::SchemaMismatch(message),
            Self::Nothing => Error::Other(source.into()),
        }
    }
}

/// Sorts an error of sqlx by what the caller can do next.
pub(super) fn store_error(error: sqlx::Error) -> Error {
    Next::after(&error).error(error)
}
