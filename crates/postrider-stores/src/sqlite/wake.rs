//! Waking workers that sleep, across processes.
//!
//! A file cannot call anybody, and nobody can watch the caller's own connection commit. So signals are part of the data:
//! staging counts up a number in the queue's row, in the caller's transaction, and only while somebody sleeps for that queue.
//! What is rolled back was never counted; what commits is counted once, however many messages it staged.
//!
//! An ear compares those numbers. It asks SQLite every few milliseconds whether anybody has committed at all
//! (`PRAGMA data_version`, which looks at shared memory and reads no page), and reads the numbers only then. Commits that follow
//! each other within that time are heard as one.

use super::{
    Names, SqliteStore,
    error::{open_error, store_error},
    moment::after,
    row::json,
};
use async_trait::async_trait;
use postrider_core::{
    Error, QueueName,
    wake::{Ear, Sleeper, Wake},
};
use sqlx::{ConnectOptions, Row, SqliteConnection};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
    time::Duration,
};
use tokio::time::sleep;

/// How often an ear asks whether anybody has committed.
const EVERY: Duration = Duration::from_millis(10);

#[async_trait]
impl Wake for SqliteStore {
    async fn lie_down(&self, sleeper: &Sleeper, lasting: Duration) -> Result<(), Error> {
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        let lapsed = names.sql("delete from {sleeper} where until <= ?1");
        lapsed.query().bind(write.now).execute(&mut write.connection).await.map_err(store_error)?;
        let sql = names.sql(
            "insert into {sleeper} (queue, worker, until) select distinct j.value, ?2, ?3 from json_each(?1) j \
             where true on conflict (queue, worker) do update set until = excluded.until",
        );
        let queues = json(sleeper.queues.iter().map(QueueName::as_str));
        let query = sql.query().bind(queues).bind(sleeper.worker).bind(after(write.now, lasting));
        query.execute(&mut write.connection).await.map_err(store_error)?;
        write.commit().await
    }

    async fn rise(&self, sleeper: &Sleeper) -> Result<(), Error> {
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        let sql = names
            .sql("delete from {sleeper} where (queue, worker) in (select j.value, ?2 from json_each(?1) j)");
        let queues = json(sleeper.queues.iter().map(QueueName::as_str));
        sql.query()
            .bind(queues)
            .bind(sleeper.worker)
            .execute(&mut write.connection)
            .await
            .map_err(store_error)?;
        write.commit().await
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Ear>, Error> {
        let options = &self.inner.options;
        let connection = options.reading().connect().await;
        let mut ear = SqliteEar {
            connection: connection.map_err(|error| open_error(options.path(), error))?,
            names: self.inner.names.clone(),
            queues: json(queues.iter().map(QueueName::as_str)),
            version: None,
            counted: BTreeMap::new(),
            heard: VecDeque::new(),
        };
        // What was counted before is not for this ear.
        ear.compare().await?;
        ear.heard.clear();
        Ok(Box::new(ear))
    }
}

struct SqliteEar {
    connection: SqliteConnection,
    names: Names,
    queues: String,
    /// What SQLite said about commits when the numbers were read last.
    version: Option<i64>,
    counted: BTreeMap<String, i64>,
    heard: VecDeque<QueueName>,
}

impl SqliteEar {
    /// Reads the numbers, if anybody has committed since they were read last.
    async fn compare(&mut self) -> Result<(), Error> {
        // The version is read first: a commit between the two is looked at twice, and not missed.
        let row = sqlx::query("pragma data_version").fetch_one(&mut self.connection).await;
        let version: i64 = row.and_then(|row| row.try_get(0)).map_err(store_error)?;
        if self.version == Some(version) {
            return Ok(());
        }
        let sql = self.names.sql(
            "select name, signals from {queue} where name in (select j.value from json_each(?1) j) order by name",
        );
        let rows = sql.query().bind(&self.queues).fetch_all(&mut self.connection).await;
        for row in rows.map_err(store_error)? {
            let name: String = row.try_get(0).map_err(store_error)?;
            let signals: i64 = row.try_get(1).map_err(store_error)?;
            if self.counted.insert(name.clone(), signals).unwrap_or(0) != signals {
                self.heard.push_back(QueueName::stored(name));
            }
        }
        self.version = Some(version);
        Ok(())
    }
}

#[async_trait]
impl Ear for SqliteEar {
    async fn wait(&mut self) -> Result<QueueName, Error> {
        loop {
            if let Some(queue) = self.heard.pop_front() {
                return Ok(queue);
            }
            self.compare().await?;
            if self.heard.is_empty() {
                sleep(EVERY).await;
            }
        }
    }
}

impl fmt::Debug for SqliteEar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteEar").field("queues", &self.queues).finish_non_exhaustive()
    }
}
