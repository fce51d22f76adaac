//! Classifies the errors of a driver by what the caller can do next.

use postrider_core::{BoxError, Error};

/// What the caller can do about an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ErrorClass {
    Transient,
    /// Another transaction holds a lock.
    Contention,
    /// The tables do not have the expected schema; the server's message.
    SchemaMismatch(String),
    Other,
}

impl ErrorClass {
    /// Classifies the server's error code.
    pub(super) fn by_code(code: &str, message: &str) -> Self {
        match code {
            // undefined table, column, function, object or schema
            "42P01" | "42703" | "42883" | "42704" | "3F000" => Self::SchemaMismatch(message.to_owned()),
            // deadlock, lock timeout
            "40P01" | "55P03" => Self::Contention,
            // connection and resource errors, shutdown, serialization failure, statement timeout
            code if code.starts_with("08")
                || code.starts_with("53")
                || code.starts_with("57P")
                || matches!(code, "40001" | "57014" | "25P02" | "25006") =>
            {
                Self::Transient
            }
            _ => Self::Other,
        }
    }

    /// Classifies an error of sqlx.
    pub(super) fn of(error: &sqlx::Error) -> Self {
        use sqlx::Error as E;
        match error {
            E::Database(db) => Self::by_code(db.code().as_deref().unwrap_or(""), db.message()),
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) => {
                Self::Transient
            }
            _ => Self::Other,
        }
    }

    /// The store's error, with its cause.
    pub(super) fn into_error(self, source: impl Into<BoxError>) -> Error {
        match self {
            Self::Transient => Error::Unavailable(source.into()),
            Self::Contention => Error::contention(source),
            Self::SchemaMismatch(message) => Error::SchemaMismatch(message),
            Self::Other => Error::Other(source.into()),
        }
    }
}

/// A failed TLS handshake. Its cause and remedy come first.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
struct TlsError {
    cause: String,
    source: sqlx::Error,
}

/// The cause and the remedy of a failed TLS handshake, if that is the error of a connection.
pub fn tls_failure(error: &sqlx::Error) -> Option<String> {
    match error {
        sqlx::Error::Tls(refusal) if refusal.to_string().contains("does not support TLS") => Some(
            "the server does not offer TLS: turn it on there (ssl = on), or connect to another port"
                .to_owned(),
        ),
        sqlx::Error::Tls(_) | sqlx::Error::Io(_) => postrider_tls::describe(error),
        _ => None,
    }
}

/// Converts an error of sqlx.
pub(super) fn store_error(error: sqlx::Error) -> Error {
    let class = ErrorClass::of(&error);
    match tls_failure(&error) {
        Some(cause) => class.into_error(TlsError { cause, source: error }),
        None => class.into_error(error),
    }
}
