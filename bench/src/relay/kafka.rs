//! Kafka: an idempotent producer, with acks from all replicas.

use super::broker::{Broker, Client};
use anyhow::{Result, anyhow};
use async_trait::async_trait;
use postrider_core::{Outgoing, Source, Transport};
use postrider_transports::kafka::{KafkaSource, KafkaTransport};
use rdkafka::{
    ClientConfig,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    message::{Header, OwnedHeaders},
    producer::{FutureProducer, FutureRecord},
};
use std::sync::Arc;

pub(super) struct Kafka {
    url: String,
    admin: AdminClient<DefaultClientContext>,
    producer: FutureProducer,
}

impl Kafka {
    pub(super) fn connect(url: &str) -> Result<Self> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", url.trim_start_matches("kafka://"));
        let admin = config.create()?;
        let producer = config.set("acks", "all").set("enable.idempotence", "true").create()?;
        Ok(Self { url: url.to_owned(), admin, producer })
    }
}

#[async_trait]
impl Broker for Kafka {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn transport(&self) -> Result<Arc<dyn Transport>> {
        Ok(Arc::new(KafkaTransport::connect(self.url.as_str())?))
    }

    async fn create(&self) -> Result<String> {
        let name = format!("bench-{}", uuid::Uuid::now_v7());
        let topic = NewTopic::new(&name, 1, TopicReplication::Fixed(1));
        let made = self.admin.create_topics([&topic], &AdminOptions::new()).await?;
        for made in made {
            made.map_err(|(topic, code)| anyhow!("{topic}: {code}"))?;
        }
        Ok(name)
    }

    async fn remove(&self, destination: &str) -> Result<()> {
        self.admin.delete_topics(&[destination], &AdminOptions::new()).await?;
        Ok(())
    }

    /// Fetches are small, because Tansu searches the headers of each record among those of all records of a reply.
    fn source(&self, destination: &str) -> Result<Arc<dyn Source>> {
        let builder = KafkaSource::builder(self.url.as_str(), destination).with_group(destination);
        let builder =
            builder.with_property("message.max.bytes", "65536").with_property("fetch.max.bytes", "65536");
        Ok(Arc::new(builder.build()?))
    }

    async fn client(&self) -> Result<Box<dyn Client>> {
        Ok(Box::new(Acknowledged(self.producer.clone())))
    }
}

struct Acknowledged(FutureProducer);

#[async_trait]
impl Client for Acknowledged {
    async fn publish(&mut self, batch: &[Outgoing]) -> Result<()> {
        let mut reports = Vec::with_capacity(batch.len());
        for outgoing in batch {
            let key = outgoing.partition_key();
            let record = FutureRecord::to(&outgoing.destination)
                .key(key.as_ref())
                .payload(outgoing.body.as_ref())
                .headers(headers(outgoing));
            reports.push(self.0.send_result(record).map_err(|(error, _)| error)?);
        }
        for report in reports {
            report.await?.map_err(|(error, _)| error)?;
        }
        Ok(())
    }
}

fn headers(outgoing: &Outgoing) -> OwnedHeaders {
    let mut headers = OwnedHeaders::new_with_capacity(1 + outgoing.attributes.len() + outgoing.headers.len());
    for (name, value) in &outgoing.attributes {
        headers = headers.insert(Header { key: &format!("ce_{name}"), value: Some(value.as_str()) });
    }
    headers = headers.insert(Header { key: "content-type", value: Some(outgoing.content_type.as_str()) });
    for (name, value) in &outgoing.headers {
        headers = headers.insert(Header { key: name, value: Some(value) });
    }
    headers
}
