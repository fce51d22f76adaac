//! Transactions of our own: the ticks of schedules, and settlements that stage.

use super::{connections::Route, error::store_error, pool};
use postrider_core::Error;
use sqlx::{Connection, PgPool, Postgres, Transaction, pool::PoolConnection};

/// A connection that is closed unless it is given back: after an error or a cancelled `begin` a transaction may be open in it,
/// and the pool would hand it on as it is.
pub(super) struct Lent(Option<PoolConnection<Postgres>>);

impl Lent {
    pub(super) async fn by(pool: &PgPool) -> Result<Self, Error> {
        pool.acquire().await.map(|connection| Self(Some(connection))).map_err(store_error)
    }

    pub(super) async fn begin(&mut self, route: Route) -> Result<Transaction<'_, Postgres>, Error> {
        let begin = match route {
            Route::Direct => "begin",
            Route::Pooled => pool::BEGIN,
        };
        let connection =
            self.0.as_mut().ok_or_else(|| Error::Other("the connection was given back".into()))?;
        connection.begin_with(begin).await.map_err(store_error)
    }

    pub(super) fn give_back(mut self) {
        self.0.take();
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.0 {
            connection.close_on_drop();
        }
    }
}
