//! How the places of the file are made: a transport to each, and a source from it. Nobody is connected to yet.

/// Tells a builder whom we trust there, and what we show. Builders of transports and of sources have the same words for it, and no
/// trait in common.
#[cfg(any(feature = "rabbitmq", feature = "nats", feature = "kafka"))]
macro_rules! trusting {
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

#[cfg(feature = "sqs")]
pub(crate) mod aws;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
#[cfg(feature = "redis")]
pub(crate) mod redis;
pub(crate) mod webhook;
