//! An open database of either kind.

use crate::{
    database::{Database, Way},
    exit::Exit,
    problem::{Code, Problem},
    stager::Stager,
};
use postrider::{
    Backend, ClientOptions, Error, Message, StageReport,
    audit::AuditChain,
    postgres::{PostgresOptions, PostgresStore},
    sqlite::SqliteStore,
};
use sqlx::postgres::PgConnectOptions;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// An open store.
#[derive(Debug, Clone)]
pub(crate) struct OpenDatabase {
    database: Database,
    store: Kind,
}

/// The store, and how an application connects to the same database.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Sqlite(SqliteStore, PathBuf),
    Postgres(PostgresStore, Box<PgConnectOptions>),
}

impl OpenDatabase {
    /// Opens an existing database. A missing file is an error.
    pub(crate) async fn existing(database: &Database) -> Result<Self, Problem> {
        Self::existing_with(database, None).await
    }

    /// Opens an existing database. With `connections`, the store opens no more of them to PostgreSQL for claims and settlements.
    pub(crate) async fn existing_with(
        database: &Database,
        connections: Option<u32>,
    ) -> Result<Self, Problem> {
        if let Database::File(path) = database {
            check_exists(database, path)?;
        }
        Self::open_with(database, connections).await
    }

    /// Opens a database. A missing file is created.
    pub(crate) async fn open(database: &Database) -> Result<Self, Problem> {
        Self::open_with(database, None).await
    }

    async fn open_with(database: &Database, connections: Option<u32>) -> Result<Self, Problem> {
        let store = match database {
            Database::File(path) => {
                let store = SqliteStore::open(path).await.map_err(|error| database.problem(&error))?;
                Kind::Sqlite(store, path.clone())
            }
            Database::Postgres { client, way, options: connect } => {
                database.check_connection().await?;
                let opening = async { PostgresStore::open(options(client, way, connections)?).await };
                let store = opening.await.map_err(|error| database.problem(&error))?;
                Kind::Postgres(store, connect.clone())
            }
        };
        Ok(Self { database: database.clone(), store })
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// The concrete store, for its transactions.
    pub(crate) fn kind(&self) -> &Kind {
        &self.store
    }

    /// The store, for everything but transactions.
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        match &self.store {
            Kind::Sqlite(store, _) => Arc::new(store.clone()),
            Kind::Postgres(store, _) => Arc::new(store.clone()),
        }
    }

    pub(crate) fn ledger(&self) -> Arc<dyn AuditChain> {
        match &self.store {
            Kind::Sqlite(store, _) => Arc::new(store.ledger()),
            Kind::Postgres(store, _) => Arc::new(store.ledger()),
        }
    }

    /// Whether free space can be reclaimed by `vacuum`.
    pub(crate) fn can_vacuum(&self) -> bool {
        matches!(self.store, Kind::Sqlite(..))
    }

    /// Reclaims free space of a SQLite file; PostgreSQL does so by itself.
    pub(crate) async fn vacuum(&self) -> Result<(), Error> {
        match &self.store {
            Kind::Sqlite(store, _) => store.vacuum().await,
            Kind::Postgres(..) => Ok(()),
        }
    }

    /// Stages one message in a transaction of its own.
    pub(crate) async fn stage(&self, message: Message) -> Result<StageReport, Error> {
        let mut stager = Stager::connect(&self.database).await?;
        let staged = stager.stage(&[message]).await;
        stager.close().await;
        staged
    }

    /// An error of the store as a problem with advice.
    pub(crate) fn problem(&self, error: &Error) -> Problem {
        match error {
            Error::SchemaMismatch(difference) => Problem::new(
                format!("{}: the tables do not match this version ({difference})", self.database),
                "run `postrider migrate status`: `postrider migrate up` creates and upgrades the tables; newer tables need a newer postrider",
            )
            .with_code(Code::Schema),
            Error::Invalid(violation) => {
                Problem::new(violation.to_string(), "correct this field").with_exit(Exit::Usage)
            }
            error => self.database.problem(error),
        }
    }

    /// Closes its connections.
    pub(crate) async fn close(self) {
        match self.store {
            Kind::Sqlite(store, _) => store.close().await,
            Kind::Postgres(store, _) => store.close().await,
        }
    }
}

fn options(client: &ClientOptions, way: &Way, connections: Option<u32>) -> Result<PostgresOptions, Error> {
    let options = PostgresOptions::new(client.clone())?;
    let options = connections.into_iter().fold(options, PostgresOptions::with_connections);
    let options = if way.behind_pooler { options.behind_pooler() } else { options };
    match &way.listen_url {
        Some(url) => options.with_listen_url(url),
        None => Ok(options),
    }
}

fn check_exists(database: &Database, path: &Path) -> Result<(), Problem> {
    std::fs::metadata(path).map(drop).map_err(|error| {
        let path = path.display();
        let advice =
            format!("pass the path of an existing database, or create it: postrider migrate up --db {path}");
        Problem::new(format!("{database}: {error}"), advice).with_code(Code::Database)
    })
}
