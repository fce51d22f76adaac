//! The store, as users use it.

use crate::side::{LEASE_SECONDS, Producer, QUEUE, Side, Worker, batch};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use postrider_core::{ClaimRequest, Outbox as _, QueueName, QueuePolicy, Store as _, schema::Schema as _};
use postrider_stores::postgres::{PostgresOptions, PostgresOutbox, PostgresStore};
use sqlx::{Connection, PgConnection};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Ours;

#[async_trait]
impl Side for Ours {
    fn name(&self) -> &'static str {
        "ours"
    }

    fn table(&self) -> &'static str {
        "postrider.ready"
    }

    async fn create(&self, url: &str) -> Result<()> {
        let store = open(url).await?;
        store.migrate().await?;
        store.declare(&QueueName::new(QUEUE)?, &QueuePolicy::default()).await?;
        store.close().await;
        Ok(())
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        let connection = PgConnection::connect(url).await?;
        Ok(Box::new(OurProducer { connection, outbox: PostgresOutbox::default() }))
    }

    async fn worker(&self, url: &str) -> Result<Box<dyn Worker>> {
        Ok(Box::new(OurWorker { store: open(url).await?, queue: QueueName::new(QUEUE)? }))
    }
}

/// One connection, like the workers of every other side.
async fn open(url: &str) -> Result<PostgresStore> {
    Ok(PostgresStore::open(PostgresOptions::new(url)?.with_connections(1)).await?)
}

#[derive(Debug)]
struct OurProducer {
    connection: PgConnection,
    outbox: PostgresOutbox,
}

#[async_trait]
impl Producer for OurProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let batch = batch(messages)?;
        let mut tx = self.connection.begin().await?;
        let staged = self.outbox.stage_all(&mut tx, &batch).await?;
        tx.commit().await?;
        ensure!(staged.new_messages() == messages, "staged {} of {messages}", staged.new_messages());
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.connection.close().await?)
    }
}

#[derive(Debug)]
struct OurWorker {
    store: PostgresStore,
    queue: QueueName,
}

#[async_trait]
impl Worker for OurWorker {
    async fn turn(&mut self, batch: usize) -> Result<usize> {
        let request = ClaimRequest::new(self.queue.clone(), batch)
            .with_lease_for(Duration::from_secs(LEASE_SECONDS.into()));
        let claimed = self.store.claim(&request).await?;
        let settlements: Vec<_> = claimed.iter().map(|claimed| claimed.lease.done()).collect();
        let lost = self.store.settle(&settlements).await?;
        ensure!(lost.is_empty(), "{} leases were lost", lost.len());
        Ok(claimed.len())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        self.store.close().await;
        Ok(())
    }
}
