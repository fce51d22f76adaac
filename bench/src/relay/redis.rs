//! Redis Streams: an append-only file, pipelines of XADD. Once as the guide recommends, with every reply after the disk write; and
//! once at full speed, where a crash of the machine loses confirmed messages.

use super::broker::{Broker, Client};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use postrider_core::{Outgoing, Source, Transport};
use postrider_transports::redis::{RedisSource, RedisTransport};
use redis::aio::MultiplexedConnection;
use std::{sync::Arc, time::Duration};

const PATIENCE: Option<Duration> = Some(Duration::from_secs(60));

/// The name of the variant that does not wait for the disk.
pub(super) const UNSYNCED: &str = "redis/unsynced";

pub(super) struct Redis {
    name: &'static str,
    url: String,
    connection: MultiplexedConnection,
}

impl Redis {
    pub(super) async fn connect(name: &'static str, url: &str) -> Result<Self> {
        let config = redis::AsyncConnectionConfig::new()
            .set_connection_timeout(PATIENCE)
            .set_response_timeout(PATIENCE);
        let client = redis::Client::open(url)?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let fsync = if name == UNSYNCED { "no" } else { "always" };
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("appendfsync").arg(fsync).query_async::<()>(&mut connection).await?;
        Ok(Self { name, url: url.to_owned(), connection })
    }
}

#[async_trait]
impl Broker for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn transport(&self) -> Result<Arc<dyn Transport>> {
        Ok(Arc::new(RedisTransport::connect(self.url.as_str())?))
    }

    async fn create(&self) -> Result<String> {
        Ok(format!("bench-{}", uuid::Uuid::now_v7()))
    }

    async fn remove(&self, destination: &str) -> Result<()> {
        redis::cmd("DEL").arg(destination).query_async::<()>(&mut self.connection.clone()).await?;
        Ok(())
    }

    fn source(&self, destination: &str) -> Result<Arc<dyn Source>> {
        let builder = RedisSource::builder(self.url.as_str(), destination).with_group("bench");
        Ok(Arc::new(builder.create_group().build()?))
    }

    async fn client(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Pipelining(self.connection.clone())))
    }
}

struct Pipelining(MultiplexedConnection);

#[async_trait]
impl Client for Pipelining {
    async fn publish(&mut self, batch: &[Outgoing]) -> Result<()> {
        let places: Vec<String> = pipeline(batch).query_async(&mut self.0).await?;
        ensure!(places.len() == batch.len(), "a message was not accepted");
        Ok(())
    }
}

fn pipeline(batch: &[Outgoing]) -> redis::Pipeline {
    let mut pipeline = redis::pipe();
    for outgoing in batch {
        let entry = pipeline.cmd("XADD").arg(&outgoing.destination).arg("*");
        entry.arg("id").arg(outgoing.id.to_string());
        entry.arg("content_type").arg(outgoing.content_type.as_str());
        for (name, value) in &outgoing.attributes {
            entry.arg(format!("ce_{name}")).arg(value.as_str());
        }
        for (name, value) in &outgoing.headers {
            entry.arg(name).arg(value);
        }
        entry.arg("body").arg(outgoing.body.as_ref());
    }
    pipeline
}
