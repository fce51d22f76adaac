//! Stages messages on a connection of its own, as a producer does.

use crate::database::Database;
use postrider::{Error, Message, Outbox, StageReport, postgres::PostgresOutbox, sqlite::SqliteOutbox};
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
        .map_err(unavailable)
    }

    /// Stages messages in one transaction.
    pub(crate) async fn stage(&mut self, messages: &[Message]) -> Result<StageReport, Error> {
        match self {
            Self::Sqlite(connection) => {
                // Takes the write lock at the start, so that the transaction cannot fail to upgrade later.
                let mut tx = connection.begin_with("begin immediate").await.map_err(unavailable)?;
                let staged = SqliteOutbox::default().stage_all(&mut tx, messages).await?;
                tx.commit().await.map_err(unavailable)?;
                Ok(staged)
            }
            Self::Postgres(connection, outbox) => {
                let mut tx = connection.begin().await.map_err(unavailable)?;
                let staged = outbox.stage_all(&mut tx, messages).await?;
                tx.commit().await.map_err(unavailable)?;
                Ok(staged)
            }
        }
    }

    pub(crate) async fn close(self) {
        // Staged messages are committed; an error on close does not matter.
        let _ = match self {
            Self::Sqlite(connection) => connection.close().await,
            Self::Postgres(connection, _) => connection.close().await,
        };
    }
}

fn unavailable(error: sqlx::Error) -> Error {
    Error::Unavailable(error.into())
}
