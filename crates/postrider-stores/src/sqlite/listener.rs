//! The listener: polls the numbers that staging increments (`notifier.rs`).
//!
//! Every few milliseconds it asks SQLite whether any transaction has committed (`PRAGMA data_version`, which looks at shared memory
//! and reads no page), and reads the numbers only then. Commits within one interval arrive as one notification.

use super::{
    SqliteNames, SqliteStore,
    error::{open_error, store_error},
    row::json,
};
use async_trait::async_trait;
use postrider_core::{Error, QueueName, notifier::Listener};
use sqlx::{ConnectOptions, Row, SqliteConnection};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};
use tokio::time::sleep;

/// How often a listener asks whether any transaction has committed.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

pub(super) struct SqliteListener {
    connection: SqliteConnection,
    names: SqliteNames,
    queues: String,
    /// The `data_version` of SQLite when the numbers were read last.
    version: Option<i64>,
    signals_seen: BTreeMap<String, i64>,
    pending: VecDeque<QueueName>,
}

impl SqliteListener {
    /// Opens a connection of its own. Earlier notifications are not for this listener.
    pub(super) async fn connect(store: &SqliteStore, queues: &[QueueName]) -> Result<Self, Error> {
        let options = &store.inner.options;
        let connection = options.reader_options().connect().await;
        let mut listener = Self {
            connection: connection.map_err(|error| open_error(options.path(), error))?,
            names: store.inner.names.clone(),
            queues: json(queues.iter().map(QueueName::as_str)),
            version: None,
            signals_seen: BTreeMap::new(),
            pending: VecDeque::new(),
        };
        listener.poll().await?;
        listener.pending.clear();
        Ok(listener)
    }

    /// Reads the numbers, if any transaction has committed since they were read last.
    async fn poll(&mut self) -> Result<(), Error> {
        // The version is read first: a commit between the two reads is seen twice, and not missed.
        let row = sqlx::query("pragma data_version").fetch_one(&mut self.connection).await;
        let version: i64 = row.and_then(|row| row.try_get(0)).map_err(store_error)?;
        if self.version == Some(version) {
            return Ok(());
        }
        let sql = self.names.sql(&sql!(
            "select name, signals from {queue} where name in (select j.value from json_each(?1) j) order by name"
        ));
        let rows = sql.query().bind(&self.queues).fetch_all(&mut self.connection).await;
        for row in rows.map_err(store_error)? {
            let name: String = row.try_get(0).map_err(store_error)?;
            let signals: i64 = row.try_get(1).map_err(store_error)?;
            if self.signals_seen.insert(name.clone(), signals).unwrap_or(0) != signals {
                self.pending.push_back(QueueName::stored(name));
            }
        }
        self.version = Some(version);
        Ok(())
    }
}

#[async_trait]
impl Listener for SqliteListener {
    async fn wait(&mut self) -> Result<QueueName, Error> {
        loop {
            if let Some(queue) = self.pending.pop_front() {
                return Ok(queue);
            }
            self.poll().await?;
            if self.pending.is_empty() {
                sleep(POLL_INTERVAL).await;
            }
        }
    }
}

impl fmt::Debug for SqliteListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteListener").field("queues", &self.queues).finish_non_exhaustive()
    }
}
