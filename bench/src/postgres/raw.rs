//! The cheapest possible lease: two content columns, one index, rows claimed and settled by their physical position. It has no
//! identity, never sweeps and reports nothing. It is not an outbox; it shows the limit of the server.

use super::reference::SETTINGS;
use crate::side::{LEASE_SECONDS, PAYLOAD, Producer, Side, Worker};
use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use sqlx::{
    Connection, Decode, Encode, Executor, PgConnection, Postgres, Row, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef, types::Oid},
};
use std::hint::black_box;
use uuid::Uuid;

const CREATE: &str = "create schema raw;
    create table raw.ready (
      id bigint generated always as identity primary key,
      lease_until timestamptz not null default '-infinity',
      token uuid,
      payload bytea not null
    ) with (
      fillfactor = 45,
      autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
      autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 10000,
      autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000,
      autovacuum_vacuum_cost_delay = 0
    )";

const STAGE: &str = "insert into raw.ready (payload) select u.payload from unnest($1::bytea[]) u(payload)";

const CLAIM: &str = "update raw.ready r set token = $1, lease_until = clock_timestamp() + $2::float8 * interval '1 s' \
    where r.ctid = any(array(select ctid from raw.ready where id > $3 and lease_until <= clock_timestamp() \
      order by id limit $4 for update skip locked)) \
    returning r.ctid, r.id, r.payload";

const SETTLE: &str = "delete from raw.ready r where r.ctid = any($2) and r.token = $1";

#[derive(Debug)]
pub(crate) struct Raw;

#[async_trait]
impl Side for Raw {
    fn name(&self) -> &'static str {
        "raw"
    }

    fn table(&self) -> &'static str {
        "raw.ready"
    }

    async fn create(&self, url: &str) -> Result<()> {
        let mut connection = PgConnection::connect(url).await?;
        connection.execute(CREATE).await?;
        Ok(connection.close().await?)
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        Ok(Box::new(RawProducer { connection: PgConnection::connect(url).await? }))
    }

    async fn worker(&self, url: &str) -> Result<Box<dyn Worker>> {
        let mut connection = PgConnection::connect(url).await?;
        connection.execute(SETTINGS).await?;
        Ok(Box::new(RawWorker { connection, mark: 0 }))
    }
}

#[derive(Debug)]
struct RawProducer {
    connection: PgConnection,
}

#[async_trait]
impl Producer for RawProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let payloads = vec![PAYLOAD.as_slice(); messages];
        sqlx::query(STAGE).bind(payloads).execute(&mut self.connection).await?;
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}

#[derive(Debug)]
struct RawWorker {
    connection: PgConnection,
    mark: i64,
}

#[async_trait]
impl Worker for RawWorker {
    async fn turn(&mut self, batch: usize) -> Result<usize> {
        let token = Uuid::new_v4();
        let rows = sqlx::query(CLAIM)
            .bind(token)
            .bind(f64::from(LEASE_SECONDS))
            .bind(self.mark)
            .bind(i64::try_from(batch)?)
            .fetch_all(&mut self.connection)
            .await?;
        let mut tuple_ids = Vec::with_capacity(rows.len());
        let mut payloads: Vec<Vec<u8>> = Vec::with_capacity(rows.len());
        for row in &rows {
            tuple_ids.push(row.try_get::<TupleId, _>(0)?);
            self.mark = self.mark.max(row.try_get(1)?);
            payloads.push(row.try_get(2)?);
        }
        black_box(&payloads);
        if rows.is_empty() {
            return Ok(0);
        }
        let settled = sqlx::query(SETTLE)
            .bind(token)
            .bind(tuple_ids)
            .execute(&mut self.connection)
            .await?
            .rows_affected();
        if settled != u64::try_from(rows.len())? {
            bail!("settled {settled} of {}", rows.len());
        }
        Ok(rows.len())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}

/// A `tid`: block and line.
#[derive(Debug, Clone, Copy)]
struct TupleId([u8; 6]);

impl Type<Postgres> for TupleId {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(27))
    }

    fn compatible(_: &PgTypeInfo) -> bool {
        true
    }
}

impl PgHasArrayType for TupleId {
    fn array_type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1010))
    }
}

impl<'r> Decode<'r, Postgres> for TupleId {
    fn decode(value: PgValueRef<'r>) -> Result<Self, BoxDynError> {
        Ok(Self(value.as_bytes()?.try_into().context("a tid has six bytes")?))
    }
}

impl Encode<'_, Postgres> for TupleId {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        buffer.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
}
