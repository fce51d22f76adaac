//! diesel-async: ours, and diesel's insert of many records.

use super::Stages;
use crate::{
    postgres::{self, QUEUE},
    side::{EVENT_TYPE, PAYLOAD, Producer, Side, batch},
};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use diesel::{Insertable, sql_types::SmallInt};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl};
use postrider_core::Outbox as _;
use postrider_stores::postgres::PostgresOutbox;
use uuid::Uuid;

mod tables {
    diesel::table! {
        hand.ready (queue, id) {
            queue -> SmallInt,
            id -> BigInt,
            message_id -> Uuid,
            payload -> Binary,
            event_type -> Nullable<Text>,
        }
    }
}

#[derive(Insertable)]
#[diesel(table_name = tables::ready)]
struct Record {
    queue: i16,
    message_id: Uuid,
    payload: &'static [u8],
    event_type: Option<&'static str>,
}

const SIGNAL: &str = "select pg_notify('hand', s.queue::text) from hand.idle s \
    where s.queue = $1 and s.until > clock_timestamp()";

pub(crate) struct Ours;

pub(crate) struct Hand;

#[async_trait]
impl Stages for Ours {
    fn tables(&self) -> Box<dyn Side> {
        Box::new(postgres::Ours)
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        let connection = AsyncPgConnection::establish(url).await?;
        Ok(Box::new(OurProducer { connection, outbox: PostgresOutbox::default() }))
    }
}

#[async_trait]
impl Stages for Hand {
    fn tables(&self) -> Box<dyn Side> {
        Box::new(postgres::Reference)
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        Ok(Box::new(HandProducer { connection: AsyncPgConnection::establish(url).await? }))
    }
}

struct OurProducer {
    connection: AsyncPgConnection,
    outbox: PostgresOutbox,
}

#[async_trait]
impl Producer for OurProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let (batch, outbox) = (batch(messages)?, &self.outbox);
        let staged = self
            .connection
            .transaction(async |tx| anyhow::Ok(outbox.stage_all(tx, &batch).await?.new_messages()))
            .await?;
        ensure!(staged == messages, "staged {staged} of {messages}");
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct HandProducer {
    connection: AsyncPgConnection,
}

#[async_trait]
impl Producer for HandProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let record = |_| Record {
            queue: QUEUE,
            message_id: Uuid::now_v7(),
            payload: PAYLOAD,
            event_type: Some(EVENT_TYPE),
        };
        let records: Vec<Record> = (0..messages).map(record).collect();
        let inserted = self
            .connection
            .transaction(async |tx| {
                let inserted = diesel::insert_into(tables::ready::table).values(&records).execute(tx).await?;
                diesel::sql_query(SIGNAL).bind::<SmallInt, _>(QUEUE).execute(tx).await?;
                anyhow::Ok(inserted)
            })
            .await?;
        ensure!(inserted == messages, "staged {inserted} of {messages}");
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
