//! The same guarantees in hand-written SQL over the bare driver: the same columns and keys, positions that are never reused, a
//! notification only for idle workers, leases with tokens by SQLite's clock, reclaimed leases, and a report of lost leases.
//!
//! It leaves out features that these messages do not use: timers, ordered keys, the archive, queue names.

use super::writing;
use crate::side::{EVENT_TYPE, LEASE_SECONDS, PAYLOAD, Producer, Side, Worker};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use serde_json::json;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, Row, SqliteConnection, sqlite::SqliteRow};
use std::{collections::HashSet, hint::black_box};
use uuid::Uuid;

pub(crate) const QUEUE: i64 = 1;
/// The number of rows in one statement: a text that the driver keeps prepared, with few parameters.
const ROWS: usize = 100;

const CREATE: &str = "create table hand_queue (id integer primary key, name text not null, signals integer not null default 0);
    insert into hand_queue (id, name) values (1, 'orders');
    create table hand_ready (
      id integer primary key autoincrement,
      queue integer not null,
      message_id blob not null check (length(message_id) = 16),
      ordered integer not null default 0,
      ripe integer not null default 0,
      token blob,
      lease_until integer,
      staged_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer)),
      due_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer)),
      attempts integer not null default 0,
      deliveries integer not null default 0,
      key text,
      timer text,
      event_type text,
      content_type text,
      tenant text,
      subject text,
      headers text,
      last_error text,
      payload blob not null
    ) strict;
    create unique index hand_message on hand_ready (message_id, queue);
    create index hand_free on hand_ready (queue, id) where token is null;
    create index hand_leased on hand_ready (queue, lease_until, id) where token is not null;
    create table hand_idle (
      queue integer not null,
      worker blob not null,
      until integer not null,
      primary key (queue, worker)
    ) strict, without rowid";

pub(crate) const SIGNAL: &str = "update hand_queue set signals = signals + 1 where id = ?1 and exists (select 1 from hand_idle s \
    where s.queue = ?1 and s.until > cast(unixepoch('subsec') * 1000000 as integer))";

/// Pending rows and rows with expired leases, each from its own index.
const CLAIM: &str = "update hand_ready set token = ?1, deliveries = deliveries + 1, \
      lease_until = cast(unixepoch('subsec') * 1000000 as integer) + ?2 \
    where id in (select id from ( \
        select * from (select id from hand_ready indexed by hand_free where queue = ?3 and token is null order by id limit ?4) \
        union all select * from (select id from hand_ready indexed by hand_leased where queue = ?3 and token is not null \
          and lease_until <= cast(unixepoch('subsec') * 1000000 as integer) order by lease_until, id limit ?4)) \
      order by id limit ?4) \
    returning id, staged_at, due_at, attempts, deliveries, message_id, payload, event_type, content_type, key, tenant, \
      subject, headers, timer";

const SETTLE: &str =
    "delete from hand_ready where id in (select j.value from json_each(?2) j) and token = ?1 returning id";

#[derive(Debug)]
pub(crate) struct Reference;

#[async_trait]
impl Side for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn table(&self) -> &'static str {
        "hand_ready"
    }

    async fn create(&self, path: &str) -> Result<()> {
        let mut connection = writing(path).connect().await?;
        connection.execute(CREATE).await?;
        Ok(connection.close().await?)
    }

    async fn producer(&self, path: &str) -> Result<Box<dyn Producer>> {
        Ok(Box::new(HandProducer { connection: writing(path).connect().await? }))
    }

    async fn worker(&self, path: &str) -> Result<Box<dyn Worker>> {
        Ok(Box::new(HandWorker { connection: writing(path).connect().await? }))
    }
}

#[derive(Debug)]
struct HandProducer {
    connection: SqliteConnection,
}

#[async_trait]
impl Producer for HandProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let ids: Vec<Uuid> = (0..messages).map(|_| Uuid::now_v7()).collect();
        let mut tx = self.connection.begin_with("begin immediate").await?;
        for ids in ids.chunks(ROWS) {
            let values = vec!["(?, ?, ?, ?)"; ids.len()].join(", ");
            let sql =
                format!("insert into hand_ready (queue, message_id, event_type, payload) values {values}");
            let query = sqlx::query(AssertSqlSafe(sql));
            let query = ids.iter().fold(query, |query, id| {
                query.bind(QUEUE).bind(*id).bind(Some(EVENT_TYPE)).bind(PAYLOAD.as_slice())
            });
            query.execute(&mut *tx).await?;
        }
        sqlx::query(SIGNAL).bind(QUEUE).execute(&mut *tx).await?;
        Ok(tx.commit().await?)
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}

/// The message as a handler receives it.
#[derive(Debug)]
#[expect(dead_code, reason = "decoded as a handler would need it")]
struct Delivery {
    id: i64,
    staged_at: i64,
    due_at: i64,
    attempts: i64,
    deliveries: i64,
    message_id: Uuid,
    payload: Vec<u8>,
    event_type: Option<String>,
    content_type: Option<String>,
    key: Option<String>,
    tenant: Option<String>,
    subject: Option<String>,
    headers: Option<String>,
    timer: Option<String>,
}

impl Delivery {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            staged_at: row.try_get(1)?,
            due_at: row.try_get(2)?,
            attempts: row.try_get(3)?,
            deliveries: row.try_get(4)?,
            message_id: row.try_get(5)?,
            payload: row.try_get(6)?,
            event_type: row.try_get(7)?,
            content_type: row.try_get(8)?,
            key: row.try_get(9)?,
            tenant: row.try_get(10)?,
            subject: row.try_get(11)?,
            headers: row.try_get(12)?,
            timer: row.try_get(13)?,
        })
    }
}

#[derive(Debug)]
struct HandWorker {
    connection: SqliteConnection,
}

#[async_trait]
impl Worker for HandWorker {
    async fn turn(&mut self, batch: usize) -> Result<usize> {
        let token = Uuid::new_v4();
        let rows = sqlx::query(CLAIM)
            .bind(token)
            .bind(i64::from(LEASE_SECONDS) * 1_000_000)
            .bind(QUEUE)
            .bind(i64::try_from(batch)?)
            .fetch_all(&mut self.connection)
            .await?;
        let mut deliveries = rows.iter().map(Delivery::read).collect::<Result<Vec<_>, _>>()?;
        deliveries.sort_unstable_by_key(|delivery| delivery.id);
        if deliveries.is_empty() {
            return Ok(0);
        }
        let ids: Vec<i64> = deliveries.iter().map(|delivery| delivery.id).collect();
        let query = sqlx::query(SETTLE).bind(token).bind(json!(ids).to_string());
        let settled = query.fetch_all(&mut self.connection).await?;
        let settled = settled.iter().map(|row| row.try_get(0)).collect::<Result<HashSet<i64>, _>>()?;
        let lost = ids.iter().filter(|id| !settled.contains(id)).count();
        ensure!(lost == 0, "{lost} leases were lost");
        Ok(black_box(deliveries).len())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}
