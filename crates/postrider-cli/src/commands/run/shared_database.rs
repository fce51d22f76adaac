//! The open database of several components of the daemon: one store, and one pool for the transactions in which they handle messages.
//!
//! All components of a database share its handle, so that the number of connections does not grow with the number of routes, consumers
//! and follow-up queues. The last component that releases the handle closes it.

use super::open::open;
use crate::{
    config::DatabaseSection,
    open_database::{Kind, OpenDatabase},
    problem::Problem,
};
use postrider::{postgres::PostgresTransactions, sqlite::SqliteTransactions};
use sqlx::{
    PgPool, SqlitePool,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous},
};
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{sync::Mutex, time::timeout};

/// Connections of a store to PostgreSQL for claims and settlements. The store opens two more for everything else, and one for each
/// component that listens.
pub(super) const STORE_CONNECTIONS: u32 = 3;
/// Connections for transactions in PostgreSQL: consumers handle messages in them, and follow-ups are settled.
const TRANSACTION_CONNECTIONS: u32 = 4;
/// Idle connections close at once.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);
/// SQLite has one writer at a time.
const SQLITE_CONNECTIONS: u32 = 2;

/// A database that is open for one or more components.
#[derive(Debug)]
pub(super) struct SharedDatabase {
    opened: OpenDatabase,
    transactions: Transactions,
}

/// Transactions of either kind of database, with their pool.
#[derive(Debug, Clone)]
pub(super) enum Transactions {
    Sqlite(SqliteTransactions, SqlitePool),
    Postgres(PostgresTransactions, PgPool),
}

/// The open databases of the daemon.
#[derive(Debug, Default)]
pub(super) struct SharedDatabases(Mutex<Vec<(DatabaseSection, Weak<SharedDatabase>)>>);

impl SharedDatabases {
    /// The database of a section: the handle that is open already, or a new one.
    pub(super) async fn open(
        &self,
        section: &DatabaseSection,
        migrate: bool,
    ) -> Result<Arc<SharedDatabase>, Problem> {
        // Held while it opens, so that two components never open the same database twice.
        let mut known = self.0.lock().await;
        known.retain(|(_, shared)| shared.strong_count() > 0);
        let is_open = known.iter().find(|(other, _)| other == section);
        if let Some(shared) = is_open.and_then(|(_, shared)| shared.upgrade()) {
            return Ok(shared);
        }
        let opened = open(section, migrate).await?;
        let transactions = Transactions::new(opened.kind());
        let shared = Arc::new(SharedDatabase { opened, transactions });
        known.push((section.clone(), Arc::downgrade(&shared)));
        Ok(shared)
    }
}

impl SharedDatabase {
    pub(super) fn opened(&self) -> &OpenDatabase {
        &self.opened
    }

    pub(super) fn transactions(&self) -> &Transactions {
        &self.transactions
    }

    /// Releases a component's share of the handle. The last one closes the connections.
    pub(super) async fn release(self: Arc<Self>) {
        let Some(last) = Arc::into_inner(self) else { return };
        match &last.transactions {
            Transactions::Sqlite(_, pool) => pool.close().await,
            // A connection on which the server is silent must not keep the daemon.
            Transactions::Postgres(_, pool) => drop(timeout(CLOSE_WITHIN, pool.close()).await),
        }
        last.opened.close().await;
    }
}

impl Transactions {
    /// Connections open on demand.
    fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Sqlite(store, path) => {
                let options = SqliteConnectOptions::new().filename(path).synchronous(SqliteSynchronous::Full);
                let pool = SqlitePoolOptions::new().max_connections(SQLITE_CONNECTIONS);
                let pool = pool.connect_lazy_with(options);
                Self::Sqlite(store.transactions(pool.clone()), pool)
            }
            Kind::Postgres(store, options) => {
                let pool = PgPoolOptions::new().max_connections(TRANSACTION_CONNECTIONS);
                let pool = pool.connect_lazy_with((**options).clone());
                Self::Postgres(store.transactions(pool.clone()), pool)
            }
        }
    }
}
