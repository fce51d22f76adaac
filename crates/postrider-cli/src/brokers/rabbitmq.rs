//! RabbitMQ.

use crate::config::EndpointSection;
use postrider::{
    Invalid,
    transports::rabbitmq::{RabbitMqOptions, RabbitMqSource, RabbitMqTransport},
};

pub(crate) fn transport(section: &EndpointSection) -> Result<RabbitMqTransport, Invalid> {
    with_tls!(RabbitMqOptions::new(section.url()?), section).build()
}

pub(crate) fn source(section: &EndpointSection) -> Result<RabbitMqSource, Invalid> {
    let builder = RabbitMqSource::builder(section.url()?, section.required("queue")?);
    with_tls!(builder, section).with_quorum(section.flag("quorum")).build()
}
