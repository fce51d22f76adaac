//! A database that was opened: what a subcommand can do with it, whichever it is.

use crate::{database::Database, problem::Problem};
use postrider::{
    Error, FollowUps, Store, audit::Chain, inspect::Inspect, postgres::PostgresStore, schema::Schema,
    sqlite::SqliteStore, wake::Wake,
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

    #[allow(dead_code, reason = "for subcommands that look into a store")]
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

    #[allow(dead_code, reason = "for subcommands that look into a store")]
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

    /// What to do about an error that the store reports.
    pub(crate) fn problem(&self, error: &Error) -> Problem {
        self.database.problem(error)
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
