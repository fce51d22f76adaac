//! A connection pool for the transactions in which a component handles messages.

use crate::database::Database;
use postrider::postgres::guard;
use sqlx::{
    PgPool, SqlitePool,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};

#[derive(Debug, Clone)]
pub(super) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Pool {
    /// A pool of up to `connections` connections, which open on demand.
    pub(super) fn new(database: &Database, connections: u32) -> Self {
        match database {
            Database::File(path) => {
                let options = SqliteConnectOptions::new().filename(path).synchronous(SqliteSynchronous::Full);
                // SQLite has one writer at a time.
                Self::Sqlite(SqlitePoolOptions::new().max_connections(2).connect_lazy_with(options))
            }
            Database::Postgres { options, .. } => {
                let pool = guard(PgPoolOptions::new()).max_connections(connections);
                Self::Postgres(pool.connect_lazy_with((**options).clone()))
            }
        }
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}
