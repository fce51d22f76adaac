//! Checks whether notifications arrive, and whether a connection is a session of the server at all.
//!
//! A pooler in transaction mode lends the most recently used session to the next client. So while another connection holds a
//! session in a transaction, ours gets another one, or has to wait: with a direct connection neither happens.

use super::super::{
    PostgresStore, connections::ConnectionMode, error::store_error, pooled_connection::connect_within,
};
use postrider_core::{Error, Finding, notifier::Notifier};
use sqlx::{Connection, Executor, FromRow, PgConnection, Row};
use std::time::Duration;
use tokio::time::timeout;

const PID: &str = "select pg_backend_pid()";
const ADDRESS: &str =
    "select quote_ident(current_user), host(inet_server_addr()), inet_server_port(), current_database()";
/// A statement that waits this long waits for a session of the pooler.
const PATIENCE: Duration = Duration::from_secs(3);
/// The pooler may have another idle session, so one attempt proves nothing.
const TRIES: usize = 3;

/// A pooler that the options do not mention. Every other check through it would run in sessions of other clients.
pub(super) async fn pooler(store: &PostgresStore) -> Result<Option<Finding>, Error> {
    match store.inner.mode {
        ConnectionMode::Direct => store.pooling().await,
        ConnectionMode::Pooled => Ok(None),
    }
}

impl PostgresStore {
    /// Detects a pooler in transaction mode between this process and the server. To check without leaving settings in the pooler's
    /// sessions, open the store as [`behind_pooler`](super::super::PostgresOptions::behind_pooler).
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn pooling(&self) -> Result<Option<Finding>, Error> {
        let connections = &self.inner.connections;
        if connections.within_timeout(is_pooled(self)).await? {
            pooled(self).await.map(Some)
        } else {
            Ok(None)
        }
    }
}

async fn pooled(store: &PostgresStore) -> Result<Finding, Error> {
    Ok(
        Finding::problem("transaction_pooling", "connection")
            .because(
                "a pooler lends another session for each transaction: settings and prepared statements stay in sessions of other \
                 clients, and notifications do not arrive. The other checks need a direct connection",
            )
            .fixed_by(direct_address(store).await?),
    )
}

pub(super) async fn findings(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    if store.inner.listen.is_none() {
        return Ok(Vec::new());
    }
    Ok(match store.listen(&[]).await {
        Ok(_) => Vec::new(),
        Err(error) => vec![
            Finding::warning("listen_not_working", "signals")
                .because(format!("workers get no notifications, and poll: {error}"))
                .fixed_by(direct_address(store).await?),
        ],
    })
}

async fn is_pooled(store: &PostgresStore) -> Result<bool, Error> {
    let (mut ours, mut other) = (connect(store).await?, connect(store).await?);
    let mut is_pooled = false;
    for _ in 0..TRIES {
        let before = pid(&mut ours).await?;
        sqlx::raw_sql("begin").execute(&mut other).await.map_err(store_error)?;
        pid(&mut other).await?;
        let after = timeout(PATIENCE, pid(&mut ours)).await;
        sqlx::raw_sql("rollback").execute(&mut other).await.map_err(store_error)?;
        is_pooled = match after {
            Ok(after) => after? != before,
            Err(_) => true,
        };
        if is_pooled {
            break;
        }
    }
    other.close().await.ok();
    ours.close().await.ok();
    Ok(is_pooled)
}

/// In the simple protocol, which every pooler passes on.
async fn pid(connection: &mut PgConnection) -> Result<i32, Error> {
    let row = connection.fetch_one(sqlx::raw_sql(PID)).await.map_err(store_error)?;
    row.try_get(0).map_err(store_error)
}

/// The server's own address, as its clients see it.
async fn direct_address(store: &PostgresStore) -> Result<String, Error> {
    let mut connection = connect(store).await?;
    let row = connection.fetch_one(sqlx::raw_sql(ADDRESS)).await.map_err(store_error)?;
    connection.close().await.ok();
    let (user, host, port, database): (String, Option<String>, Option<i32>, String) =
        FromRow::from_row(&row).map_err(store_error)?;
    Ok(match (host, port) {
        (Some(host), Some(port)) => format!("postgres://{user}@{host}:{port}/{database}"),
        _ => "set the server's own address instead of the pooler's".to_owned(),
    })
}

async fn connect(store: &PostgresStore) -> Result<PgConnection, Error> {
    let connecting = PgConnection::connect_with(&store.inner.connect);
    connect_within(store.inner.timeouts.connect, connecting).await.map_err(store_error)
}
