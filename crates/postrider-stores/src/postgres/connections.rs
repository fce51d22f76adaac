//! The connections of the hot path.
//!
//! An sqlx pool pings a connection before it lends it and again when it returns: three round trips for one statement. Claims and
//! settlements therefore keep the connections that they took from the pool, as long as these are in use. An idle connection goes
//! back to the pool and is tested there. When a connection fails, all others are released as well: they lead to the same server.
//!
//! Behind a pooler in transaction mode, neither settings nor prepared statements may outlive a transaction. There every
//! statement runs unnamed, in a transaction that begins with the settings. That is four round trips for one statement, and it
//! works with every version of every pooler.

use super::{
    error::store_error,
    pool,
    pooled_connection::{PooledConnection, close_idle, no_reply},
};
use postrider_core::Error;
use sqlx::{
    Connection, Executor, PgConnection, PgPool, Postgres,
    postgres::{PgArguments, PgRow},
    query::Query,
};
use std::{
    future::Future,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::{sync::Semaphore, time::timeout};

/// A connection that was idle for longer is tested before it is used.
const TRUSTED_FOR: Duration = Duration::from_secs(5);
/// Idle connections close at once; more time is for a statement that is still running.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Connections {
    pool: PgPool,
    mode: ConnectionMode,
    request_timeout: Duration,
    permits: Semaphore,
    kept: Mutex<Vec<(Instant, PooledConnection)>>,
}

/// How a connection reaches the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ConnectionMode {
    /// Directly: a connection is a session of the server.
    #[default]
    Direct,
    /// Through a pooler in transaction mode: a connection may be another session after each transaction.
    Pooled,
}

/// Runs statements of the hot path: on a kept connection, or in the application's transaction.
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

/// A transaction of the application behind a pooler: statements run without being prepared.
pub(super) struct UnpreparedConnection<'t>(pub(super) &'t mut PgConnection);

impl Fetch for UnpreparedConnection<'_> {
    async fn fetch_all(&mut self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, Error> {
        query.persistent(false).fetch_all(&mut *self.0).await.map_err(store_error)
    }
}

impl Connections {
    /// Keeps up to `max` connections of `pool`, which must have more than `max`.
    pub(super) fn new(pool: PgPool, max: u32, mode: ConnectionMode, request_timeout: Duration) -> Self {
        let permits = Semaphore::new(usize::try_from(max).unwrap_or(Semaphore::MAX_PERMITS));
        Self { pool, mode, request_timeout, permits, kept: Mutex::default() }
    }

    /// Runs one statement, which is one round trip. Safe to cancel: a connection that was interrupted goes back to the pool,
    /// which waits for its reply and tests it.
    pub(super) async fn fetch_all(
        &self,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, Error> {
        let _permit = self.permits.acquire().await.map_err(|closed| Error::Unavailable(Box::new(closed)))?;
        let mut connection = match self.take_kept() {
            Some(connection) => connection,
            None => self.acquire().await?,
        };
        let rows = self.execute(&mut connection, query).await;
        match &rows {
            Ok(_) | Err(sqlx::Error::Database(_)) => self.kept().push((Instant::now(), connection)),
            Err(_) => self.release_all(),
        }
        rows.map_err(store_error)
    }

    /// Runs one statement that is not on the hot path.
    pub(super) async fn run(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, Error> {
        let mut connection = self.acquire().await?;
        self.execute(&mut connection, query).await.map_err(store_error)
    }

    /// Runs one statement that is not on the hot path and returns its only row.
    pub(super) async fn run_for_one(&self, query: Query<'_, Postgres, PgArguments>) -> Result<PgRow, Error> {
        let row = self.run(query).await?.into_iter().next();
        row.ok_or_else(|| store_error(sqlx::Error::RowNotFound))
    }

    /// A connection of the pool.
    pub(super) async fn acquire(&self) -> Result<PooledConnection, Error> {
        let acquired = PooledConnection::acquire(&self.pool, self.request_timeout).await;
        if matches!(acquired, Err(sqlx::Error::PoolTimedOut)) {
            // Perhaps an idle connection did not reply to the pool's test, and the others will not, either.
            close_idle(&self.pool);
        }
        acquired.map_err(store_error)
    }

    /// One session of the server for several statements, which [`within_timeout`](Self::within_timeout) bounds. Behind a pooler it is a
    /// transaction, which is rolled back when the connection returns to the pool.
    pub(super) async fn session(&self) -> Result<PooledConnection, Error> {
        let mut connection = self.acquire().await?;
        if self.mode == ConnectionMode::Pooled {
            connection.execute(pool::BEGIN).await.map_err(store_error)?;
        }
        Ok(connection)
    }

    /// Bounds several statements, such as those of a transaction, by the request timeout. They must own their connection, so that it
    /// closes or returns in bounded time, too.
    pub(super) async fn within_timeout<T>(
        &self,
        statements: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match timeout(self.request_timeout, statements).await {
            Ok(done) => done,
            Err(_) => {
                self.suspect_all();
                Err(store_error(no_reply(self.request_timeout)))
            }
        }
    }

    async fn execute(
        &self,
        connection: &mut PooledConnection,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        match timeout(self.request_timeout, self.execute_on(connection, query)).await {
            Ok(rows) => rows,
            Err(_) => {
                connection.close_on_drop(true);
                self.suspect_all();
                Err(no_reply(self.request_timeout))
            }
        }
    }

    async fn execute_on(
        &self,
        connection: &mut PgConnection,
        query: Query<'_, Postgres, PgArguments>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        if self.mode == ConnectionMode::Direct {
            return query.fetch_all(connection).await;
        }
        let mut tx = connection.begin_with(pool::BEGIN).await?;
        match query.persistent(false).fetch_all(&mut *tx).await {
            Ok(rows) => tx.commit().await.map(|()| rows),
            Err(error) => {
                // The first error is the one to report.
                tx.rollback().await.ok();
                Err(error)
            }
        }
    }

    /// Returns every kept connection to the pool.
    pub(super) fn release_all(&self) {
        self.kept().clear();
    }

    /// Closes every connection that is not in use: one has gone silent, and the others lead to the same server.
    fn suspect_all(&self) {
        for (_, connection) in &mut *self.kept() {
            connection.close_on_drop(true);
        }
        self.release_all();
        close_idle(&self.pool);
    }

    /// Closes the pool. A connection that is silent does not keep it.
    pub(super) async fn close(&self) {
        self.release_all();
        // The rest closes in the background.
        timeout(CLOSE_WITHIN.min(self.request_timeout), self.pool.close()).await.ok();
    }

    fn take_kept(&self) -> Option<PooledConnection> {
        let mut kept = self.kept();
        let (since, connection) = kept.pop()?;
        if since.elapsed() > TRUSTED_FOR {
            // The most recently used connection is too old, and so are the others.
            kept.clear();
            return None;
        }
        Some(connection)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Vec<(Instant, PooledConnection)>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
