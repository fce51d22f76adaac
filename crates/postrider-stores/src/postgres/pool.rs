//! Settings of the store's own connections, and a guard for the pools of applications.

use super::{connections::ConnectionMode, options::Timeouts};
use sqlx::{Executor, PgConnection, postgres::PgPoolOptions};
use std::time::Duration;

/// Each statement of the store has one plan under these settings, and none waits without a limit.
pub const SETTINGS: &str = "set search_path = pg_catalog; set plan_cache_mode = force_generic_plan; set enable_seqscan = off; \
    set enable_bitmapscan = off; set enable_sort = off; set jit = off; \
    set default_transaction_isolation = 'read committed'; \
    set lock_timeout = '2s'; set statement_timeout = '60s'; set idle_in_transaction_session_timeout = '60s'; \
    set tcp_keepalives_idle = 30; set tcp_keepalives_interval = 10; set tcp_keepalives_count = 3";

/// The same settings for one transaction, for pooled connections, which may be another session afterwards.
pub(super) const BEGIN: &str = "begin isolation level read committed; set local search_path = pg_catalog; \
    set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off; set local enable_bitmapscan = off; \
    set local enable_sort = off; set local jit = off; set local lock_timeout = '2s'; set local statement_timeout = '60s'; \
    set local idle_in_transaction_session_timeout = '60s'";

/// The store's own pool.
pub(super) fn options(mode: ConnectionMode, timeouts: Timeouts) -> PgPoolOptions {
    // A connection that is opened, and before that the wait for one that is in use.
    let pool = PgPoolOptions::new().acquire_timeout(timeouts.connect * 2);
    match mode {
        ConnectionMode::Direct => pool.after_connect(move |connection, _| {
            Box::pin(async move {
                connection.execute(SETTINGS).await?;
                set_keepalive(connection, timeouts.keepalive).await
            })
        }),
        // Settings would stay in sessions that the pooler lends to other clients.
        ConnectionMode::Pooled => guard(pool),
    }
}

/// sqlx has no keepalive of its own. Probes of the server keep the connection in the tables of firewalls as well.
pub(super) async fn set_keepalive(
    connection: &mut PgConnection,
    idle: Option<Duration>,
) -> Result<(), sqlx::Error> {
    let Some(idle) = idle else { return Ok(()) };
    let set = sqlx::query("select set_config('tcp_keepalives_idle', $1, false)").persistent(false);
    set.bind(idle.as_secs().to_string()).execute(connection).await.map(drop)
}

/// Protects a pool of your own from lost writes after a `begin` of your own that was cancelled.
///
/// In sqlx up to 0.9.0, a `pool.begin()` that is cancelled while `BEGIN` is in flight (a timeout, a `select!`) returns a
/// connection with an open transaction to the pool. The next user of the connection writes into that transaction, sees only
/// successes, and loses every write when the connection closes. The guard rolls back an open transaction when a connection
/// returns to the pool, at the price of one round trip.
///
/// Postrider never cancels a `BEGIN`, so a pool on which only Postrider begins transactions
/// ([`PostgresStore::transactions`](super::PostgresStore::transactions)) needs no guard. Use it for a pool whose transactions your
/// own code begins under a timeout.
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
