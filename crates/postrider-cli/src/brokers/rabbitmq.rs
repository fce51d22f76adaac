//! RabbitMQ.

use super::client;
use crate::config::EndpointSection;
use postrider::{
    Invalid,
    transports::rabbitmq::{RabbitMqSource, RabbitMqTransport},
};

pub(crate) fn transport(section: &EndpointSection) -> Result<RabbitMqTransport, Invalid> {
    RabbitMqTransport::new(client(section)?)
}

pub(crate) fn source(section: &EndpointSection) -> Result<RabbitMqSource, Invalid> {
    let builder = RabbitMqSource::builder(client(section)?, section.required("queue")?);
    builder.with_quorum(section.flag("quorum")).build()
}
