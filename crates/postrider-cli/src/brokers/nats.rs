//! NATS JetStream.

use crate::config::EndpointSection;
use postrider::{
    Invalid,
    transports::nats::{NatsSource, NatsTransport},
};
use std::time::Duration;

/// The ack deadline of a JetStream consumer that Postrider creates.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// Sets TLS and the login of a builder.
macro_rules! with_login {
    ($builder:expr, $section:expr) => {{
        let section = $section;
        let mut builder = with_tls!($builder, section);
        if let Some(token) = section.secret("token") {
            builder = builder.with_token(token.reveal());
        }
        if let Some(seed) = section.secret("nkey") {
            builder = builder.with_nkey(seed.reveal());
        }
        if let Some(credentials) = section.secret("credentials") {
            builder = builder.with_credentials(credentials.reveal());
        }
        builder
    }};
}

pub(crate) fn transport(section: &EndpointSection) -> Result<NatsTransport, Invalid> {
    let builder = with_login!(NatsTransport::builder(section.url()?), section);
    match section.string("stream") {
        Some(stream) => builder.with_stream(stream).build(),
        None => builder.build(),
    }
}

pub(crate) fn source(section: &EndpointSection) -> Result<NatsSource, Invalid> {
    let builder =
        NatsSource::builder(section.url()?, section.required("stream")?, section.required("durable")?);
    let builder = with_login!(builder, section);
    match section.string("subject") {
        Some(subject) => builder.with_created_consumer(subject, ACK_WAIT).build(),
        None => builder.build(),
    }
}
