//! tokio-postgres: ours, and one prepared statement with arrays.

use super::Stages;
use crate::{
    postgres::{self, QUEUE, STAGE},
    side::{EVENT_TYPE, PAYLOAD, Producer, Side, batch},
};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use postrider_core::Outbox as _;
use postrider_stores::postgres::PostgresOutbox;
use tokio_postgres::{Client, NoTls, Statement};
use uuid::Uuid;

pub(crate) struct Ours;

pub(crate) struct Hand;

#[async_trait]
impl Stages for Ours {
    fn tables(&self) -> Box<dyn Side> {
        Box::new(postgres::Ours)
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        Ok(Box::new(OurProducer { client: connect(url).await?, outbox: PostgresOutbox::default() }))
    }
}

#[async_trait]
impl Stages for Hand {
    fn tables(&self) -> Box<dyn Side> {
        Box::new(postgres::Reference)
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        let client = connect(url).await?;
        let stage = client.prepare(STAGE).await?;
        Ok(Box::new(HandProducer { client, stage }))
    }
}

async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // The connection task ends with its client.
    tokio::spawn(connection);
    Ok(client)
}

struct OurProducer {
    client: Client,
    outbox: PostgresOutbox,
}

#[async_trait]
impl Producer for OurProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let batch = batch(messages)?;
        let mut tx = self.client.transaction().await?;
        let staged = self.outbox.stage_all(&mut tx, &batch).await?;
        tx.commit().await?;
        ensure!(staged.new_messages() == messages, "staged {} of {messages}", staged.new_messages());
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct HandProducer {
    client: Client,
    stage: Statement,
}

#[async_trait]
impl Producer for HandProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let ids: Vec<Uuid> = (0..messages).map(|_| Uuid::now_v7()).collect();
        let tx = self.client.transaction().await?;
        let inserted = tx
            .execute(
                &self.stage,
                &[
                    &vec![QUEUE; messages],
                    &ids,
                    &vec![PAYLOAD.as_slice(); messages],
                    &vec![Some(EVENT_TYPE); messages],
                    &vec![QUEUE],
                ],
            )
            .await?;
        tx.commit().await?;
        ensure!(inserted == u64::try_from(messages)?, "staged {inserted} of {messages}");
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
