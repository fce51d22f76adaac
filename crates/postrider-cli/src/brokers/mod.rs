//! Builds the transport of a destination and the source of a consumer from their sections. Nothing connects yet.

/// Sets the CA bundle and the client certificate (mTLS) of a builder. The builders of transports and sources have the same methods,
/// and no trait in common.
#[cfg(any(feature = "rabbitmq", feature = "nats", feature = "kafka"))]
macro_rules! with_tls {
    ($builder:expr, $section:expr) => {{
        let (mut builder, section) = ($builder, $section);
        if let Some(file) = section.string("ca_file") {
            builder = builder.with_ca_bundle(file);
        }
        if let Some((certificate, key)) = section.client_certificate() {
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
