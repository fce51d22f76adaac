//! NATS JetStream: a file-backed stream, with acks.

use super::broker::{Broker, Client};
use anyhow::Result;
use async_nats::{
    HeaderMap,
    jetstream::{self, Context, stream::Config},
};
use async_trait::async_trait;
use postrider_core::{Outgoing, Source, Transport};
use postrider_transports::nats::{NatsSource, NatsTransport};
use std::{sync::Arc, time::Duration};

pub(super) struct Nats {
    url: String,
    context: Context,
}

impl Nats {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        Ok(Self { url: url.to_owned(), context: jetstream::new(async_nats::connect(url).await?) })
    }
}

#[async_trait]
impl Broker for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn transport(&self) -> Result<Arc<dyn Transport>> {
        Ok(Arc::new(NatsTransport::connect(self.url.as_str())?))
    }

    async fn create(&self) -> Result<String> {
        let name = format!("BENCH{}", uuid::Uuid::now_v7().simple());
        let config = Config { subjects: vec![name.clone()], name: name.clone(), ..Config::default() };
        self.context.create_stream(config).await?;
        Ok(name)
    }

    async fn remove(&self, destination: &str) -> Result<()> {
        self.context.delete_stream(destination).await?;
        Ok(())
    }

    fn source(&self, destination: &str) -> Result<Arc<dyn Source>> {
        let builder = NatsSource::builder(self.url.as_str(), destination, "bench");
        Ok(Arc::new(builder.with_created_consumer(destination, Duration::from_secs(30)).build()?))
    }

    async fn client(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Acknowledged(self.context.clone())))
    }
}

struct Acknowledged(Context);

#[async_trait]
impl Client for Acknowledged {
    async fn publish(&mut self, batch: &[Outgoing]) -> Result<()> {
        let mut acks = Vec::with_capacity(batch.len());
        for outgoing in batch {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", outgoing.id.to_string());
            for (name, value) in &outgoing.attributes {
                headers.insert(format!("ce-{name}"), value.as_str());
            }
            for (name, value) in &outgoing.headers {
                headers.insert(name.as_str(), value.as_str());
            }
            let sent =
                self.0.publish_with_headers(outgoing.destination.clone(), headers, outgoing.body.clone());
            acks.push(sent.await?);
        }
        for ack in acks {
            ack.await?;
        }
        Ok(())
    }
}
