//! What an error of the driver means to the caller.

use postrider_core::Error;

/// Sorts an error of sqlx by what the caller can do next.
pub(super) fn store_error(error: sqlx::Error) -> Error {
    use sqlx::Error as E;
    match &error {
        E::Database(db) => match db.code().as_deref().unwrap_or("") {
            // undefined table, column, function, object or schema
            "42P01" | "42703" | "42883" | "42704" | "3F000" => Error::SchemaMismatch(db.message().to_owned()),
            // connection and resource trouble, shutdown, serialization failure, deadlock, lock and statement timeouts
            code if code.starts_with("08")
                || code.starts_with("53")
                || code.starts_with("57P")
                || matches!(code, "40001" | "40P01" | "55P03" | "57014" | "25P02" | "25006") =>
            {
                Error::Unavailable(Box::new(error))
            }
            _ => Error::Other(Box::new(error)),
        },
        E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) => {
            Error::Unavailable(Box::new(error))
        }
        _ => Error::Other(Box::new(error)),
    }
}
