//! A database that was opened: what a subcommand can do with it, whichever it is.

use crate::{database::Database, exit::Exit, problem::Problem};
use postrider::{
    Error, FollowUps, Message, OutboxExt, Staged, Store,
    audit::Chain,
    inspect::Inspect,
    postgres::{PostgresOutbox, PostgresStore},
    schema::Schema,
    sqlite::{SqliteOutbox, SqliteStore},
    wake::Wake,
};
use sqlx::{
    Connection, PgConnection, SqliteConnection,
    postgres::PgConnectOptions,
    sqlite::{SqliteConnectOptions, SqliteSynchronous},
};
use std::{path::Path, sync::Arc};

/// A store, by each of its doors.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    database: Database,
    store: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Sqlite(SqliteStore),
    Postgres(PostgresStore),
}

impl Opened {
    /// Opens a database that is there. A file that is missing is not made.
    pub(crate) async fn existing(database: &Database) -> Result<Self, Problem> {
        if let Database::File(path) = database {
            there(database, path)?;
        }
        Self::open(database).await
    }

    /// Opens a database; a file that is missing is made.
    pub(crate) async fn open(database: &Database) -> Result<Self, Problem> {
        let store = match database {
            Database::File(path) => {
                Kind::Sqlite(SqliteStore::open(path).await.map_err(|error| database.problem(&error))?)
            }
            Database::Postgres { url, .. } => {
                database.knock().await?;
                Kind::Postgres(PostgresStore::connect(url).await.map_err(|error| database.problem(&error))?)
            }
        };
        Ok(Self { database: database.clone(), store })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        match &self.store {
            Kind::Sqlite(store) => Arc::new(store.clone()),
            Kind::Postgres(store) => Arc::new(store.clone()),
        }
    }

    pub(crate) fn wake(&self) -> Arc<dyn Wake> {
        match &self.store {
            Kind::Sqlite(store) => Arc::new(store.clone()),
            Kind::Postgres(store) => Arc::new(store.clone()),
        }
    }

    pub(crate) fn inspect(&self) -> Arc<dyn Inspect> {
        match &self.store {
            Kind::Sqlite(store) => Arc::new(store.clone()),
            Kind::Postgres(store) => Arc::new(store.clone()),
        }
    }

    pub(crate) fn schema(&self) -> Arc<dyn Schema> {
        match &self.store {
            Kind::Sqlite(store) => Arc::new(store.clone()),
            Kind::Postgres(store) => Arc::new(store.clone()),
        }
    }

    pub(crate) fn follow_ups(&self) -> Arc<dyn FollowUps> {
        match &self.store {
            Kind::Sqlite(store) => Arc::new(store.clone()),
            Kind::Postgres(store) => Arc::new(store.clone()),
        }
    }

    pub(crate) fn ledger(&self) -> Arc<dyn Chain> {
        match &self.store {
            Kind::Sqlite(store) => Arc::new(store.ledger()),
            Kind::Postgres(store) => Arc::new(store.ledger()),
        }
    }

    /// The number of the last migration that was applied, or `None` when there are no tables.
    pub(crate) async fn applied(&self) -> Result<Option<i64>, Problem> {
        match &self.database {
            Database::File(path) => applied_to_file(path).await,
            Database::Postgres { options, .. } => applied_to_server(options).await,
        }
        .map_err(|error| self.problem(&Error::Other(error.into())))
    }

    /// Stages one message in a transaction of its own.
    pub(crate) async fn stage(&self, message: Message) -> Result<Staged, Error> {
        let lost = |error: sqlx::Error| Error::Unavailable(error.into());
        match &self.database {
            Database::File(path) => {
                let options = SqliteConnectOptions::new().filename(path).synchronous(SqliteSynchronous::Full);
                let mut connection = SqliteConnection::connect_with(&options).await.map_err(lost)?;
                // Who waits for the lock at the beginning does not find it taken in the middle.
                let mut tx = connection.begin_with("begin immediate").await.map_err(lost)?;
                let staged = SqliteOutbox::default().stage(&mut tx, message).await?;
                tx.commit().await.map_err(lost)?;
                connection.close().await.ok();
                Ok(staged)
            }
            Database::Postgres { options, .. } => {
                let mut connection = PgConnection::connect_with(options).await.map_err(lost)?;
                let mut tx = connection.begin().await.map_err(lost)?;
                let staged = PostgresOutbox::default().stage(&mut tx, message).await?;
                tx.commit().await.map_err(lost)?;
                connection.close().await.ok();
                Ok(staged)
            }
        }
    }

    /// What to do about an error that the store reports.
    pub(crate) fn problem(&self, error: &Error) -> Problem {
        match error {
            Error::SchemaMismatch(words) => Problem::new(
                format!("{}: its tables are not what this version needs ({words})", self.database),
                "look with postrider migrate status; postrider migrate up brings them to this version",
            ),
            Error::Invalid(rule) => {
                Problem::new(rule.to_string(), "change what breaks the rule").ending(Exit::Misused)
            }
            error => self.database.problem(error),
        }
    }

    /// Closes its connections.
    pub(crate) async fn close(self) {
        match self.store {
            Kind::Sqlite(store) => store.close().await,
            Kind::Postgres(store) => store.close().await,
        }
    }
}

fn there(database: &Database, path: &Path) -> Result<(), Problem> {
    std::fs::metadata(path).map(drop).map_err(|error| {
        Problem::new(format!("{database}: {error}"), "give the path of a database that is there")
    })
}

async fn applied_to_file(path: &Path) -> Result<Option<i64>, sqlx::Error> {
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    let there = "select exists (select 1 from sqlite_schema where name = 'postrider_migration')";
    let last = "select max(version) from postrider_migration where success";
    let applied = match sqlx::query_scalar(there).fetch_one(&mut connection).await? {
        true => sqlx::query_scalar(last).fetch_one(&mut connection).await?,
        false => None,
    };
    connection.close().await?;
    Ok(applied)
}

async fn applied_to_server(options: &PgConnectOptions) -> Result<Option<i64>, sqlx::Error> {
    let mut connection = PgConnection::connect_with(options).await?;
    let there = "select to_regclass('postrider.migration') is not null";
    let last = "select max(version) from postrider.migration where success";
    let applied = match sqlx::query_scalar(there).fetch_one(&mut connection).await? {
        true => sqlx::query_scalar(last).fetch_one(&mut connection).await?,
        false => None,
    };
    connection.close().await?;
    Ok(applied)
}
