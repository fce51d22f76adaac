//! The connections of the hot path.
//!
//! A pool of sqlx asks the server whether a connection is alive before it hands it out and again when it comes back: three
//! round trips for one statement. Claims and settlements therefore keep the connections that they took from the pool, as long
//! as these are in use. One that has been idle goes back to the pool and is tested there, and one that fails takes the
//! others with it: they lead to the same server.

use super::error::store_error;
use postrider_core::Error;
use sqlx::{
    PgConnection, PgPool, Postgres,
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
    permits: Semaphore,
    kept: Mutex<Vec<(Instant, PoolConnection<Postgres>)>>,
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

impl Connections {
    /// Keeps up to `most` connections of `pool`, which must have more than that.
    pub(super) fn new(pool: PgPool, most: u32) -> Self {
        let permits = Semaphore::new(usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS));
        Self { pool, permits, kept: Mutex::default() }
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
        let answer = query.fetch_all(&mut *connection).await;
        match &answer {
            Ok(_) | Err(sqlx::Error::Database(_)) => self.kept().push((Instant::now(), connection)),
            Err(_) => self.forget(),
        }
        answer.map_err(store_error)
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
