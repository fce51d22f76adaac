//! The connections of the hot path.
//!
//! A pool of sqlx asks the server whether a connection is alive before it hands it out and again when it comes back: three
//! round trips for one statement. Claims and settlements therefore keep the connections that they took from the pool, as long
//! as these are in use. One that has been idle goes back to the pool and is tested there, and one that fails takes the
//! others with it: they lead to the same server.
//!
//! Behind a pooler that lends a server's session for one transaction at a time, nothing of ours may outlive a transaction:
//! neither settings nor prepared statements. There every statement runs unnamed, in a transaction that begins with the
//! settings. That is four round trips for one statement, and it works with every version of every pooler.

use super::{error::store_error, pool};
use postrider_core::Error;
use sqlx::{
    Connection, PgConnection, PgPool, Postgres, Transaction,
    pool::PoolConnection,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// A connection that was idle for longer is tested before it is used.
const TRUSTED_FOR: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Connections {
    pool: PgPool,
    route: Route,
    permits: Semaphore,
    kept: Mutex<Vec<(Instant, PoolConnection<Postgres>)>>,
}

/// What lies between us and the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Route {
    /// Nothing: a connection is a session of the server.
    #[default]
    Direct,
    /// A pooler: a connection may be another session after each transaction.
    Pooled,
}

/// Where statements of the hot path run: on a connection that is kept for them, or in somebody's transaction.
pub(super) trait Fetch {
    async fn fetch_all(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, Error>;
}

impl Fetch for &Connections {
    async fn fetch_all(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, Error> {
        Connections::fetch_all(self, query).await
    }
}

impl Fetch for &mut PgConnection {
    async fn fetch_all(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, Error> {
        query.fetch_all(&mut **self).await.map_err(store_error)
    }
}

/// A session of the server, for as long as it is ours. What is borrowed is rolled back in the end.
#[derive(Debug)]
pub(super) enum Session {
    Whole(PoolConnection<Postgres>),
    Borrowed(Transaction<'static, Postgres>),
}

impl Session {
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        match self {
            Self::Whole(connection) => connection,
            Self::Borrowed(transaction) => transaction,
        }
    }
}

/// A transaction of the application's, behind a pooler.
pub(super) struct Unprepared<'t>(pub(super) &'t mut PgConnection);

impl Fetch for Unprepared<'_> {
    async fn fetch_all(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, Error> {
        query.persistent(false).fetch_all(&mut *self.0).await.map_err(store_error)
    }
}

impl Connections {
    /// Keeps up to `most` connections of `pool`, which must have more than that.
    pub(super) fn new(pool: PgPool, most: u32, route: Route) -> Self {
        let permits = Semaphore::new(usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS));
        Self { pool, route, permits, kept: Mutex::default() }
    }

    /// Runs one statement, which is one round trip. Safe to cancel: a connection that was interrupted goes back to the pool,
    /// which waits for its answer and tests it.
    pub(super) async fn fetch_all(
        &self,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, Error> {
        let _permit = self.permits.acquire().await.map_err(|closed| Error::Unavailable(Box::new(closed)))?;
        let mut connection = match self.take_kept() {
            Some(connection) => connection,
            None => self.pool.acquire().await.map_err(store_error)?,
        };
        let answer = self.answer(&mut connection, query).await;
        match &answer {
            Ok(_) | Err(sqlx::Error::Database(_)) => self.kept().push((Instant::now(), connection)),
            Err(_) => self.forget(),
        }
        answer.map_err(store_error)
    }

    /// Runs one statement that is not on the hot path.
    pub(super) async fn run(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, Error> {
        let mut connection = self.pool.acquire().await.map_err(store_error)?;
        self.answer(&mut connection, query).await.map_err(store_error)
    }

    /// The same, when it answers with one row.
    pub(super) async fn run_for_one(&self, query: Query<'_, Postgres, PgArguments>) -> Result<PgRow, Error> {
        let row = self.run(query).await?.into_iter().next();
        row.ok_or_else(|| store_error(sqlx::Error::RowNotFound))
    }

    /// Several statements on one session of the server.
    pub(super) async fn session(&self) -> Result<Session, Error> {
        match self.route {
            Route::Direct => self.pool.acquire().await.map(Session::Whole).map_err(store_error),
            Route::Pooled => {
                self.pool.begin_with(pool::BEGIN).await.map(Session::Borrowed).map_err(store_error)
            }
        }
    }

    async fn answer(
        &self,
        connection: &mut PgConnection,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if self.route == Route::Direct {
            return query.fetch_all(connection).await;
        }
        let mut tx = connection.begin_with(pool::BEGIN).await?;
        match query.persistent(false).fetch_all(&mut *tx).await {
            Ok(rows) => tx.commit().await.map(|()| rows),
            Err(error) => {
                // What went wrong first is what counts.
                tx.rollback().await.ok();
                Err(error)
            }
        }
    }

    /// Gives every connection back to the pool.
    pub(super) fn forget(&self) {
        self.kept().clear();
    }

    fn take_kept(&self) -> Option<PoolConnection<Postgres>> {
        let mut kept = self.kept();
        let (since, connection) = kept.pop()?;
        if since.elapsed() > TRUSTED_FOR {
            // The last one used is too old, and so are the others.
            kept.clear();
            return None;
        }
        Some(connection)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, PoolConnection<Postgres>)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
