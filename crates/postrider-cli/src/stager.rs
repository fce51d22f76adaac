//! Who stages, in a connection of its own as a producer does.

use crate::database::Database;
use postrider::{Error, Message, Outbox, Staged, postgres::PostgresOutbox, sqlite::SqliteOutbox};
use sqlx::{
    Connection, PgConnection, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};

#[derive(Debug)]
pub(crate) enum Stager {
    Sqlite(SqliteConnection),
    Postgres(PgConnection, PostgresOutbox),
}

impl Stager {
    pub(crate) async fn connect(database: &Database) -> Result<Self, Error> {
        match database {
            Database::File(path) => {
                let options = SqliteConnectOptions::new().filename(path).synchronous(SqliteSynchronous::Full);
                SqliteConnection::connect_with(&options).await.map(Self::Sqlite)
            }
            Database::Postgres { options, way, .. } => {
                let outbox = PostgresOutbox::default();
                let outbox = if way.behind_pooler { outbox.behind_pooler() } else { outbox };
                PgConnection::connect_with(options).await.map(|connection| Self::Postgres(connection, outbox))
            }
        }
        .map_err(lost)
    }

    /// Stages messages in one transaction.
    pub(crate) async fn stage(&mut self, messages: &[Message]) -> Result<Staged, Error> {
        match self {
            Self::Sqlite(connection) => {
                // Who waits for the lock at the beginning does not find it taken in the middle.
                let mut tx = connection.begin_with("begin immediate").await.map_err(lost)?;
                let staged = SqliteOutbox::default().stage_all(&mut tx, messages).await?;
                tx.commit().await.map_err(lost)?;
                Ok(staged)
            }
            Self::Postgres(connection, outbox) => {
                let mut tx = connection.begin().await.map_err(lost)?;
                let staged = outbox.stage_all(&mut tx, messages).await?;
                tx.commit().await.map_err(lost)?;
                Ok(staged)
            }
        }
    }

    pub(crate) async fn close(self) {
        // What was staged is committed; whoever hangs up first does not matter.
        let _ = match self {
            Self::Sqlite(connection) => connection.close().await,
            Self::Postgres(connection, _) => connection.close().await,
        };
    }
}

fn lost(error: sqlx::Error) -> Error {
    Error::Unavailable(error.into())
}
