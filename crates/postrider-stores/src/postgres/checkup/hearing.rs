//! Whether signals are heard, and whether a connection is a session of the server at all.
//!
//! A pooler in transaction mode lends the session that was used last to whoever asks next. So while another connection holds one
//! in a transaction, ours is given another, or has to wait: with the server itself neither happens.

use super::super::{PostgresStore, connections::Route, error::store_error};
use postrider_core::{Error, Finding, wake::Wake};
use sqlx::{Connection, Executor, FromRow, PgConnection, Row};
use std::time::Duration;
use tokio::time::timeout;

const PID: &str = "select pg_backend_pid()";
const ADDRESS: &str =
    "select quote_ident(current_user), host(inet_server_addr()), inet_server_port(), current_database()";
/// A statement that waits for so long waits for a session.
const PATIENCE: Duration = Duration::from_secs(3);
/// A pooler may have an idle session to lend besides.
const TRIES: usize = 3;

/// A pooler that nobody has told us of. Whatever else is looked at through it is looked at in sessions of others.
pub(super) async fn pooler(store: &PostgresStore) -> Result<Option<Finding>, Error> {
    match store.inner.route {
        Route::Direct => store.pooling().await,
        Route::Pooled => Ok(None),
    }
}

impl PostgresStore {
    /// A pooler that lends another session of the server for each transaction, if there is one in between. To ask without leaving
    /// anything in those sessions, open the store as [`behind_pooler`](super::super::PostgresOptions::behind_pooler).
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn pooling(&self) -> Result<Option<Finding>, Error> {
        if is_pooled(self).await? { pooled(self).await.map(Some) } else { Ok(None) }
    }
}

async fn pooled(store: &PostgresStore) -> Result<Finding, Error> {
    Ok(
        Finding::problem("transaction_pooling", "connection")
            .because(
                "a pooler lends another session for each transaction: settings and statements stay in sessions of others, and \
                 signals are heard by nobody. The rest is looked at past it",
            )
            .fixed_by(past_it(store).await?),
    )
}

pub(super) async fn findings(store: &PostgresStore) -> Result<Vec<Finding>, Error> {
    if store.inner.listen.is_none() {
        return Ok(Vec::new());
    }
    Ok(match store.listen(&[]).await {
        Ok(_) => Vec::new(),
        Err(error) => vec![
            Finding::warning("deaf", "signals")
                .because(format!("workers are not woken, and poll: {error}"))
                .fixed_by(past_it(store).await?),
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

/// The server tells its own address, as whoever stands before it sees it.
async fn past_it(store: &PostgresStore) -> Result<String, Error> {
    let mut connection = connect(store).await?;
    let row = connection.fetch_one(sqlx::raw_sql(ADDRESS)).await.map_err(store_error)?;
    connection.close().await.ok();
    let (user, host, port, database): (String, Option<String>, Option<i32>, String) =
        FromRow::from_row(&row).map_err(store_error)?;
    Ok(match (host, port) {
        (Some(host), Some(port)) => format!("postgres://{user}@{host}:{port}/{database}"),
        _ => "give the server's own address instead of the pooler's".to_owned(),
    })
}

async fn connect(store: &PostgresStore) -> Result<PgConnection, Error> {
    PgConnection::connect_with(&store.inner.connect).await.map_err(store_error)
}
