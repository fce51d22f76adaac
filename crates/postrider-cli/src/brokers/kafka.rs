//! Kafka.

use crate::config::{EndpointSection, Secret};
use postrider::{
    Invalid,
    transports::kafka::{KafkaOptions, KafkaSource, KafkaTransport, SaslMechanism},
};

/// Sets TLS and SASL of a builder.
macro_rules! with_login {
    ($builder:expr, $section:expr) => {{
        let section = $section;
        let mut builder = with_tls!($builder, section);
        if let Some((mechanism, user, password)) = login(section) {
            builder = builder.with_sasl(mechanism, user, password);
        }
        builder
    }};
}

pub(crate) fn transport(section: &EndpointSection) -> Result<KafkaTransport, Invalid> {
    with_login!(KafkaOptions::new(section.url()?), section).build()
}

pub(crate) fn source(section: &EndpointSection) -> Result<KafkaSource, Invalid> {
    let mut builder = with_login!(KafkaSource::builder(section.url()?, section.required("topic")?), section);
    if let Some(group) = section.string("group") {
        builder = builder.with_group(group);
    }
    if let Some(instance) = section.string("instance") {
        builder = builder.with_instance(instance);
    }
    builder.build()
}

/// The SASL login; the file has all of its keys or none.
fn login(section: &EndpointSection) -> Option<(SaslMechanism, &str, &str)> {
    let mechanism = match section.string("sasl")? {
        "scram-sha-256" => SaslMechanism::ScramSha256,
        "scram-sha-512" => SaslMechanism::ScramSha512,
        _ => SaslMechanism::Plain,
    };
    Some((mechanism, section.string("user")?, section.secret("password").map(Secret::reveal)?))
}
