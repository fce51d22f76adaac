//! A database that was opened: what a subcommand can do with it, whichever it is.

use crate::{
    database::{Database, Way},
    exit::Exit,
    problem::{Code, Problem},
    stager::Stager,
};
use postrider::{
    Checkup, Error, FollowUps, Message, Staged, Store,
    audit::Chain,
    inspect::{Inspect, Operate},
    postgres::{PostgresOptions, PostgresStore},
    schema::Schema,
    sqlite::SqliteStore,
    wake::Wake,
};
use std::{path::Path, sync::Arc};

/// A store, by each of its doors.
#[derive(Debug, Clone)]
pub(crate) struct Opened {
    database: Database,
    store: Kind,
}

/// Which it is.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
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
            Database::Postgres { url, way, .. } => {
                database.knock().await?;
                let opening = async { PostgresStore::open(options(url, way)?).await };
                Kind::Postgres(opening.await.map_err(|error| database.problem(&error))?)
            }
        };
        Ok(Self { database: database.clone(), store })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// The store itself, for whoever needs transactions of it.
    pub(crate) fn kind(&self) -> &Kind {
        &self.store
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
        self.operate()
    }

    pub(crate) fn operate(&self) -> Arc<dyn Operate> {
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

    pub(crate) fn checkup(&self) -> Arc<dyn Checkup> {
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

    /// Whether the room of what was removed can be given back by hand.
    pub(crate) fn can_vacuum(&self) -> bool {
        matches!(self.store, Kind::Sqlite(_))
    }

    /// Gives it back, where that is done by hand.
    pub(crate) async fn vacuum(&self) -> Result<(), Error> {
        match &self.store {
            Kind::Sqlite(store) => store.vacuum().await,
            Kind::Postgres(_) => Ok(()),
        }
    }

    /// Stages one message in a transaction of its own.
    pub(crate) async fn stage(&self, message: Message) -> Result<Staged, Error> {
        let mut stager = Stager::connect(&self.database).await?;
        let staged = stager.stage(&[message]).await;
        stager.close().await;
        staged
    }

    /// What to do about an error that the store reports.
    pub(crate) fn problem(&self, error: &Error) -> Problem {
        match error {
            Error::SchemaMismatch(words) => Problem::new(
                format!("{}: its tables are not what this version needs ({words})", self.database),
                "look with postrider migrate status; postrider migrate up brings them to this version",
            )
            .coded(Code::Schema),
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

fn options(url: &str, way: &Way) -> Result<PostgresOptions, Error> {
    let options = PostgresOptions::new(url)?;
    let options = if way.behind_pooler { options.behind_pooler() } else { options };
    match &way.listen_url {
        Some(url) => options.with_listen_url(url),
        None => Ok(options),
    }
}

fn there(database: &Database, path: &Path) -> Result<(), Problem> {
    std::fs::metadata(path).map(drop).map_err(|error| {
        Problem::new(format!("{database}: {error}"), "give the path of a database that is there")
            .coded(Code::Database)
    })
}
