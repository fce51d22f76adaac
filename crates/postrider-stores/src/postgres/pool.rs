//! The connections that we open, and a guard for those that users open.

use sqlx::{Executor, PgConnection, postgres::PgPoolOptions};

/// Each of our statements has one plan under these settings, and none of them waits for ever.
pub const SETTINGS: &str = "set search_path = pg_catalog; set plan_cache_mode = force_generic_plan; set enable_seqscan = off; \
    set enable_bitmapscan = off; set enable_sort = off; set jit = off; \
    set default_transaction_isolation = 'read committed'; \
    set lock_timeout = '10s'; set statement_timeout = '60s'; set idle_in_transaction_session_timeout = '60s'; \
    set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 3";

/// The same for one transaction, for connections that are another session after it.
pub(super) const BEGIN: &str = "begin isolation level read committed; set local search_path = pg_catalog; \
    set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off; set local enable_bitmapscan = off; \
    set local enable_sort = off; set local jit = off; set local lock_timeout = '10s'; set local statement_timeout = '60s'; \
    set local idle_in_transaction_session_timeout = '60s'";

/// Prepares a connection of ours.
pub(super) async fn settle_in(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    connection.execute(SETTINGS).await.map(|_| ())
}

/// Guards a pool of yours against a way to lose writes.
///
/// In sqlx up to 0.9.0, a `pool.begin()` that is cancelled while `BEGIN` is on its way (a timeout, a `select!`) gives the
/// pool back a connection with an open transaction. Whoever gets it next writes into that transaction, is told that all
/// went well, and loses it all when the connection closes. The guard rolls back whatever is open when a connection comes
/// back to the pool, at the price of one round trip.
///
/// The store's own pool needs it behind a pooler only: otherwise it begins transactions for the ticks of schedules alone, and
/// closes the connection of one that is cut short.
///
/// ```no_run
/// # async fn run() -> Result<(), sqlx::Error> {
/// use sqlx::postgres::PgPoolOptions;
/// let pool = postrider_stores::postgres::guard(PgPoolOptions::new()).connect("postgres://localhost/shop").await?;
/// # Ok(()) }
/// ```
#[must_use]
pub fn guard(options: PgPoolOptions) -> PgPoolOptions {
    options.after_release(|connection, _| {
        Box::pin(async move {
            // A block, because a bare ROLLBACK outside of a transaction makes the server warn each time.
            connection.execute("begin; rollback").await?;
            Ok(true)
        })
    })
}
