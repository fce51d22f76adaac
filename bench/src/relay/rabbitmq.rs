//! RabbitMQ: a durable queue, persistent messages, confirms.

use super::broker::{Broker, Client};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable, LongString, ShortString},
};
use postrider_core::{Outgoing, Source, Transport};
use postrider_transports::rabbitmq::{RabbitMqSource, RabbitMqTransport};
use std::sync::Arc;

pub(super) struct RabbitMq {
    url: String,
    connection: Connection,
    channel: Channel,
}

impl RabbitMq {
    pub(super) async fn connect(url: &str) -> Result<Self> {
        let connection = Connection::connect(url, ConnectionProperties::default()).await?;
        let channel = connection.create_channel().await?;
        Ok(Self { url: url.to_owned(), connection, channel })
    }
}

#[async_trait]
impl Broker for RabbitMq {
    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn transport(&self) -> Result<Arc<dyn Transport>> {
        Ok(Arc::new(RabbitMqTransport::new(self.url.as_str())?))
    }

    async fn create(&self) -> Result<String> {
        let name = format!("bench-{}", uuid::Uuid::now_v7());
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        self.channel.queue_declare(name.as_str().into(), durable, FieldTable::default()).await?;
        Ok(name)
    }

    async fn remove(&self, destination: &str) -> Result<()> {
        self.channel.queue_delete(destination.into(), QueueDeleteOptions::default()).await?;
        Ok(())
    }

    fn source(&self, destination: &str) -> Result<Arc<dyn Source>> {
        Ok(Arc::new(RabbitMqSource::connect(self.url.as_str(), destination)?))
    }

    async fn client(&self) -> Result<Box<dyn Client>> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(Box::new(Confirming(channel)))
    }
}

struct Confirming(Channel);

#[async_trait]
impl Client for Confirming {
    async fn publish(&mut self, batch: &[Outgoing]) -> Result<()> {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let mut confirms = Vec::with_capacity(batch.len());
        for outgoing in batch {
            let key = outgoing.destination.as_str().into();
            let sent = self.0.basic_publish("".into(), key, options, &outgoing.body, properties(outgoing));
            confirms.push(sent.await?);
        }
        for confirm in confirms {
            ensure!(matches!(confirm.await?, Confirmation::Ack(None)), "a message was not accepted");
        }
        Ok(())
    }
}

fn properties(outgoing: &Outgoing) -> BasicProperties {
    let mut headers = FieldTable::default();
    let text = |value: &str| AMQPValue::LongString(LongString::from(value));
    for (name, value) in &outgoing.attributes {
        headers.insert(format!("ce-{name}").into(), text(value));
    }
    for (name, value) in &outgoing.headers {
        headers.insert(name.as_str().into(), text(value));
    }
    BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type(ShortString::from(outgoing.content_type.as_str()))
        .with_message_id(ShortString::from(outgoing.id.to_string()))
        .with_headers(headers)
}
