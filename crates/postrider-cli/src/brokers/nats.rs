//! NATS JetStream.

use crate::config::Place;
use postrider::{
    Invalid,
    transports::nats::{NatsSource, NatsTransport},
};
use std::time::Duration;

/// A consumer that is made where it is not there gives messages so long before they come again.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// Also tells a builder who we are.
macro_rules! reached {
    ($builder:expr, $place:expr) => {{
        let place = $place;
        let mut builder = trusting!($builder, place);
        if let Some(token) = place.secret("token") {
            builder = builder.with_token(token.reveal());
        }
        if let Some(seed) = place.secret("nkey") {
            builder = builder.with_nkey(seed.reveal());
        }
        if let Some(credentials) = place.secret("credentials") {
            builder = builder.with_credentials(credentials.reveal());
        }
        builder
    }};
}

pub(crate) fn transport(place: &Place) -> Result<NatsTransport, Invalid> {
    let builder = reached!(NatsTransport::builder(place.url()?), place);
    match place.text("stream") {
        Some(stream) => builder.with_stream(stream).build(),
        None => builder.build(),
    }
}

pub(crate) fn source(place: &Place) -> Result<NatsSource, Invalid> {
    let builder = NatsSource::builder(place.url()?, place.needed("stream")?, place.needed("durable")?);
    let builder = reached!(builder, place);
    match place.text("subject") {
        Some(subject) => builder.with_created_consumer(subject, ACK_WAIT).build(),
        None => builder.build(),
    }
}
