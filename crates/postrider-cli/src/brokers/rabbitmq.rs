//! RabbitMQ.

use crate::config::Place;
use postrider::{
    Invalid,
    transports::rabbitmq::{RabbitMqOptions, RabbitMqSource, RabbitMqTransport},
};

pub(crate) fn transport(place: &Place) -> Result<RabbitMqTransport, Invalid> {
    trusting!(RabbitMqOptions::new(place.url()?), place).build()
}

pub(crate) fn source(place: &Place) -> Result<RabbitMqSource, Invalid> {
    let builder = RabbitMqSource::builder(place.url()?, place.needed("queue")?);
    trusting!(builder, place).with_quorum(place.flag("quorum")).build()
}
