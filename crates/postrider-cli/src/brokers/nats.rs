//! NATS JetStream.

use crate::config::{EndpointSection, Secret};
use postrider::{
    ClientOptions, Invalid,
    transports::nats::{NatsSource, NatsTransport},
};
use std::time::Duration;

/// The ack deadline of a JetStream consumer that Postrider creates.
const ACK_WAIT: Duration = Duration::from_secs(30);

/// Sets the logins that only NATS has. The builders of transport and source have the same methods, and no trait in common.
macro_rules! with_login {
    ($builder:expr, $section:expr) => {{
        let (mut builder, section) = ($builder, $section);
        if let Some(seed) = section.secret("nkey") {
            builder = builder.with_nkey(seed.reveal());
        }
        if let Some(credentials) = section.secret("credentials") {
            builder = builder.with_credentials(credentials.reveal());
        }
        builder
    }};
}

fn client(section: &EndpointSection) -> Result<ClientOptions, Invalid> {
    let client = super::client(section)?;
    Ok(match section.secret("token").map(Secret::reveal) {
        Some(token) => client.with_token(token),
        None => client,
    })
}

pub(crate) fn transport(section: &EndpointSection) -> Result<NatsTransport, Invalid> {
    let builder = with_login!(NatsTransport::builder(client(section)?), section);
    match section.string("stream") {
        Some(stream) => builder.with_stream(stream).build(),
        None => builder.build(),
    }
}

pub(crate) fn source(section: &EndpointSection) -> Result<NatsSource, Invalid> {
    let builder =
        NatsSource::builder(client(section)?, section.required("stream")?, section.required("durable")?);
    let builder = with_login!(builder, section);
    match section.string("subject") {
        Some(subject) => builder.with_created_consumer(subject, ACK_WAIT).build(),
        None => builder.build(),
    }
}
