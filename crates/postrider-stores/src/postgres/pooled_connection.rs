//! A connection of the store's pool that a silent network cannot hold.
//!
//! sqlx tests a connection that returns to the pool, and waits for as long as the reply to an interrupted statement takes. On a
//! connection that has gone silent (a failover, a restarted pooler, a forgotten NAT entry) there is no reply, and the pool loses a place.
//! So the return has a bound, after which the connection is closed.

use sqlx::{PgConnection, PgPool, Postgres, pool::PoolConnection};
use std::{
    future::Future,
    ops::{Deref, DerefMut},
    time::Duration,
};
use tokio::{runtime::Handle, time::timeout};

#[derive(Debug)]
pub(super) struct PooledConnection {
    connection: PoolConnection<Postgres>,
    return_within: Duration,
    closes: bool,
}

impl PooledConnection {
    pub(super) async fn acquire(pool: &PgPool, return_within: Duration) -> Result<Self, sqlx::Error> {
        let connection = pool.acquire().await?;
        Ok(Self { connection, return_within, closes: false })
    }

    /// Whether it is closed when dropped, instead of returning to the pool.
    pub(super) fn close_on_drop(&mut self, closes: bool) {
        self.closes = closes;
    }
}

/// Closes the idle connections of a pool.
pub(super) fn close_idle(pool: &PgPool) {
    while let Some(mut connection) = pool.try_acquire() {
        connection.close_on_drop();
    }
}

/// Bounds the opening of a connection. A pool tries again and again while the server refuses.
pub(super) async fn connect_within<T>(
    limit: Duration,
    connecting: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    timeout(limit, connecting).await.unwrap_or_else(|_| {
        let text = format!("no connection to the database within {limit:?}");
        Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text).into())
    })
}

/// The error of a statement without a reply. The statement may or may not have been executed.
pub(super) fn no_reply(limit: Duration) -> sqlx::Error {
    let text = format!("the database did not reply within {limit:?}; the connection was closed");
    std::io::Error::new(std::io::ErrorKind::TimedOut, text).into()
}

impl Deref for PooledConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        match Handle::try_current() {
            // The pool closes it, in bounded time.
            Ok(_) if self.closes => self.connection.close_on_drop(),
            Ok(runtime) => {
                runtime.spawn(timeout(self.return_within, self.connection.return_to_pool()));
            }
            // Without a runtime nothing can be sent: this closes the socket.
            Err(_) => drop(self.connection.return_to_pool()),
        }
    }
}
