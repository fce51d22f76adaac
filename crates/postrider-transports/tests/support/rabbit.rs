//! A RabbitMQ client for tests: declares queues and exchanges, and reads queues.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    options::{
        BasicGetOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};
use postrider_testkit::{Kind, broker::RabbitMq, shared, transport::Received};
use std::{process::Command, time::Duration};

/// A connection with one channel on it.
pub(crate) struct Rabbit {
    pub(crate) connection: Connection,
    pub(crate) channel: Channel,
}

pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{}", postrider_core::MessageId::at(std::time::SystemTime::now()))
}

pub(crate) fn durable() -> QueueDeclareOptions {
    QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() }
}

pub(crate) fn durable_exchange() -> ExchangeDeclareOptions {
    ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() }
}

pub(crate) fn table<const N: usize>(arguments: [(&str, AMQPValue); N]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        table.insert(name.into(), value);
    }
    table
}

pub(crate) fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// Runs `rabbitmqctl` on a test's own broker, in the environment of that broker, which has the node's name and cookie.
pub(crate) fn control(broker: &RabbitMq, arguments: &[&str]) {
    let id = broker.processes().pop().unwrap();
    let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap();
    let environment = String::from_utf8(environment).unwrap();
    let variables = environment.split('\0').filter_map(|variable| variable.split_once('='));
    let mut command = Command::new(shared::programs(Kind::RabbitMq).join("rabbitmqctl"));
    command.env_clear().envs(variables).args(arguments);
    let output = command.output().unwrap();
    assert!(output.status.success(), "rabbitmqctl {arguments:?}: {output:?}");
}

impl Rabbit {
    pub(crate) async fn at(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Self { connection, channel }
    }

    pub(crate) async fn confirming(&self) -> Channel {
        let channel = self.connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        channel
    }

    /// A new durable queue.
    pub(crate) async fn queue(&self) -> String {
        let name = unique("queue");
        self.declare(&name, durable(), FieldTable::default()).await;
        name
    }

    pub(crate) async fn declare(&self, name: &str, options: QueueDeclareOptions, arguments: FieldTable) {
        self.channel.queue_declare(name.into(), options, arguments).await.unwrap();
    }

    /// A new exchange.
    pub(crate) async fn exchange(
        &self,
        kind: ExchangeKind,
        options: ExchangeDeclareOptions,
        arguments: FieldTable,
    ) -> String {
        let name = unique("exchange");
        self.channel.exchange_declare(name.as_str().into(), kind, options, arguments).await.unwrap();
        name
    }

    pub(crate) async fn bind(&self, queue: &str, exchange: &str, key: &str) {
        let options = QueueBindOptions::default();
        let bound = self.channel.queue_bind(
            queue.into(),
            exchange.into(),
            key.into(),
            options,
            FieldTable::default(),
        );
        bound.await.unwrap();
    }

    /// Takes a message out of a queue, if there is one.
    pub(crate) async fn take(&self, queue: &str) -> Option<Received> {
        let got = self.channel.basic_get(queue.into(), BasicGetOptions { no_ack: true }).await.unwrap()?;
        Some(undo(&got.delivery.properties, &got.delivery.data, "ce-"))
    }

    /// Takes messages until there are `count`, and then the rest.
    pub(crate) async fn take_all(&self, queue: &str, count: usize) -> Vec<Received> {
        let mut taken = Vec::new();
        loop {
            match self.take(queue).await {
                Some(received) => taken.push(received),
                None if taken.len() >= count => return taken,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

/// Decodes a message, independently of the transport.
pub(crate) fn undo(properties: &BasicProperties, body: &[u8], prefix: &str) -> Received {
    let mut received = Received {
        id: properties.message_id().as_ref().map(ToString::to_string),
        content_type: properties.content_type().as_ref().map(ToString::to_string),
        body: body.to_vec().into(),
        ..Received::default()
    };
    for (name, value) in properties.headers().iter().flat_map(FieldTable::inner) {
        let AMQPValue::LongString(value) = value else { panic!("{name} is not text: {value:?}") };
        let value = String::from_utf8(value.as_bytes().to_vec()).unwrap();
        match name.as_str().strip_prefix(prefix) {
            Some(attribute) => received.attributes.insert(attribute.to_owned(), value),
            None => received.headers.insert(name.to_string(), value),
        };
    }
    received
}
