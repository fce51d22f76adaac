//! The same guarantees in hand-written SQL over the bare driver: the same columns and keys, ids in the order of xids, a
//! notification only for idle workers, leases with tokens, sweeps for late commits and expired leases, and a report of lost leases.
//!
//! It leaves out features that these messages do not use: timers, ordered keys, the archive, queue names.

use crate::side::{EVENT_TYPE, LEASE_SECONDS, PAYLOAD, Producer, Side, Worker};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use sqlx::{Connection, Executor, PgConnection, Row, postgres::PgRow};
use std::{
    hint::black_box,
    time::{Duration, Instant},
};
use time::OffsetDateTime;
use uuid::Uuid;

pub(crate) const QUEUE: i16 = 1;
const TICK: Duration = Duration::from_millis(100);
const LAPSE_SWEEP: Duration = Duration::from_secs(5);

/// The settings that give each statement one plan, as in the store.
pub(crate) const SETTINGS: &str = "set search_path = pg_catalog; set plan_cache_mode = force_generic_plan; \
    set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off; set jit = off; \
    set default_transaction_isolation = 'read committed'; \
    set lock_timeout = '10s'; set statement_timeout = '60s'; set idle_in_transaction_session_timeout = '60s'";

const CREATE: &str = "create schema hand;
    create sequence hand.position as bigint cache 1;
    create table hand.ready (
      id bigint not null default (case when pg_current_xact_id() is not null then nextval('hand.position') end),
      staged_at timestamptz not null default clock_timestamp(),
      due_at timestamptz not null default clock_timestamp(),
      lease_until timestamptz not null default '-infinity',
      message_id uuid not null,
      token uuid,
      attempts integer not null default 0,
      deliveries integer not null default 0,
      queue smallint not null,
      ordered boolean not null default false,
      payload bytea not null,
      event_type text,
      content_type text,
      key text collate \"C\",
      tenant text,
      subject text,
      timer text,
      headers jsonb,
      last_error text,
      primary key (queue, id),
      unique (message_id, queue)
    ) with (
      fillfactor = 45,
      autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
      autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
      autovacuum_vacuum_cost_delay = 0
    );
    create table hand.idle (
      queue smallint not null,
      worker uuid not null,
      until timestamptz not null,
      primary key (queue, worker)
    ) with (fillfactor = 20)";

/// The idle workers are looked up once.
pub(crate) const STAGE: &str = "insert into hand.ready (queue, message_id, payload, event_type) \
    select u.queue, u.message_id, u.payload, u.event_type \
    from unnest($1::smallint[], $2::uuid[], $3::bytea[], $4::text[]) u(queue, message_id, payload, event_type) \
    where (select count(pg_notify('hand', s.queue::text)) from hand.idle s \
           where s.queue = any($5::smallint[]) and s.until > clock_timestamp()) >= 0";

const CLAIM: &str = "update hand.ready r set token = $1, deliveries = r.deliveries + 1, \
      lease_until = clock_timestamp() + $2::float8 * interval '1 s' \
    where r.ctid = any(array(select ctid from hand.ready \
      where queue = $3 and id > $4 and lease_until <= clock_timestamp() \
      order by queue, id limit $5 for update skip locked)) \
    returning r.id, r.queue, r.staged_at, r.due_at, r.attempts, r.deliveries, r.message_id, r.payload, r.event_type, \
      r.content_type, r.key, r.tenant, r.subject, r.headers::text, r.timer";

const SETTLE: &str = "with done as ( \
      delete from hand.ready r where r.message_id = any($2::uuid[]) and r.token = $1 returning r.message_id) \
    select case when (select count(*) from done) = cardinality($2::uuid[]) then null \
      else array(select unnest($2::uuid[]) except select message_id from done) end";

#[derive(Debug)]
pub(crate) struct Reference;

#[async_trait]
impl Side for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn table(&self) -> &'static str {
        "hand.ready"
    }

    async fn create(&self, url: &str) -> Result<()> {
        let mut connection = PgConnection::connect(url).await?;
        connection.execute(CREATE).await?;
        Ok(connection.close().await?)
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        Ok(Box::new(HandProducer { connection: PgConnection::connect(url).await? }))
    }

    async fn worker(&self, url: &str) -> Result<Box<dyn Worker>> {
        let mut connection = PgConnection::connect(url).await?;
        connection.execute(SETTINGS).await?;
        Ok(Box::new(HandWorker { connection, cursor: ClaimCursor::new(Instant::now()) }))
    }
}

#[derive(Debug)]
struct HandProducer {
    connection: PgConnection,
}

#[async_trait]
impl Producer for HandProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let ids: Vec<Uuid> = (0..messages).map(|_| Uuid::now_v7()).collect();
        let mut tx = self.connection.begin().await?;
        let inserted = sqlx::query(STAGE)
            .bind(vec![QUEUE; messages])
            .bind(&ids)
            .bind(vec![PAYLOAD.as_slice(); messages])
            .bind(vec![Some(EVENT_TYPE); messages])
            .bind(vec![QUEUE])
            .execute(&mut *tx)
            .await?
            .rows_affected();
        tx.commit().await?;
        ensure!(inserted == u64::try_from(messages)?, "staged {inserted} of {messages}");
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}

/// The low-water mark, where a claim starts.
#[derive(Debug)]
struct ClaimCursor {
    low_water_mark: i64,
    /// The low-water mark at the previous tick.
    previous_mark: i64,
    /// A sweep that reached its limit below the low-water mark continues here.
    unfinished: Option<i64>,
    next_tick: Instant,
    next_lapse: Instant,
}

impl ClaimCursor {
    fn new(now: Instant) -> Self {
        Self { low_water_mark: 0, previous_mark: 0, unfinished: None, next_tick: now, next_lapse: now }
    }

    fn start(&mut self, now: Instant) -> i64 {
        if let Some(position) = self.unfinished {
            return position;
        }
        if now < self.next_tick {
            return self.low_water_mark;
        }
        self.next_tick = now + TICK;
        let previous_mark = std::mem::replace(&mut self.previous_mark, self.low_water_mark);
        if now < self.next_lapse {
            return previous_mark;
        }
        self.next_lapse = now + LAPSE_SWEEP;
        0
    }

    fn passed(&mut self, last: Option<i64>, full: bool) {
        self.unfinished = last.filter(|last| full && *last < self.low_water_mark);
        self.low_water_mark = self.low_water_mark.max(last.unwrap_or(0));
    }
}

/// The message as a handler receives it.
#[derive(Debug)]
#[expect(dead_code, reason = "decoded as a handler would need it")]
struct Delivery {
    id: i64,
    queue: i16,
    staged_at: OffsetDateTime,
    due_at: OffsetDateTime,
    attempts: i32,
    deliveries: i32,
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
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get(0)?,
            queue: row.try_get(1)?,
            staged_at: row.try_get(2)?,
            due_at: row.try_get(3)?,
            attempts: row.try_get(4)?,
            deliveries: row.try_get(5)?,
            message_id: row.try_get(6)?,
            payload: row.try_get(7)?,
            event_type: row.try_get(8)?,
            content_type: row.try_get(9)?,
            key: row.try_get(10)?,
            tenant: row.try_get(11)?,
            subject: row.try_get(12)?,
            headers: row.try_get(13)?,
            timer: row.try_get(14)?,
        })
    }
}

#[derive(Debug)]
struct HandWorker {
    connection: PgConnection,
    cursor: ClaimCursor,
}

#[async_trait]
impl Worker for HandWorker {
    async fn turn(&mut self, batch: usize) -> Result<usize> {
        let token = Uuid::new_v4();
        let rows = sqlx::query(CLAIM)
            .bind(token)
            .bind(f64::from(LEASE_SECONDS))
            .bind(QUEUE)
            .bind(self.cursor.start(Instant::now()))
            .bind(i64::try_from(batch)?)
            .fetch_all(&mut self.connection)
            .await?;
        let mut deliveries = rows.iter().map(Delivery::read).collect::<Result<Vec<_>, _>>()?;
        deliveries.sort_unstable_by_key(|delivery| delivery.id);
        self.cursor.passed(deliveries.last().map(|delivery| delivery.id), deliveries.len() == batch);
        if deliveries.is_empty() {
            return Ok(0);
        }
        let ids: Vec<Uuid> = deliveries.iter().map(|delivery| delivery.message_id).collect();
        let answer = sqlx::query(SETTLE).bind(token).bind(&ids).fetch_one(&mut self.connection).await?;
        let lost: Option<Vec<Uuid>> = answer.try_get(0)?;
        ensure!(lost.is_none(), "leases were lost");
        Ok(black_box(deliveries).len())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}
