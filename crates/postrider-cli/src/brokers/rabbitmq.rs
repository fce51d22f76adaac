//! RabbitMQ.

use crate::config::Place;
use postrider::{
    Invalid,
    transports::rabbitmq::{RabbitMqOptions, RabbitMqSource, RabbitMqTransport},
};

/// Tells a builder whom we trust. Both builders have the same words for it, and no trait in common.
macro_rules! reached {
    ($builder:expr, $place:expr) => {{
        let (mut builder, place) = ($builder, $place);
        if let Some(file) = place.text("ca_file") {
            builder = builder.with_root_certificates(file);
        }
        if let Some((certificate, key)) = place.certificate() {
            builder = builder.with_client_certificate(certificate, key);
        }
        builder
    }};
}

pub(crate) fn transport(place: &Place) -> Result<RabbitMqTransport, Invalid> {
    reached!(RabbitMqOptions::new(place.url()?), place).build()
}

pub(crate) fn source(place: &Place) -> Result<RabbitMqSource, Invalid> {
    let builder = RabbitMqSource::builder(place.url()?, place.needed("queue")?);
    reached!(builder, place).with_quorum(place.flag("quorum")).build()
}
