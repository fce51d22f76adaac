//! Kafka.

use crate::config::{EndpointSection, Secret};
use postrider::{
    ClientOptions, Invalid,
    transports::kafka::{KafkaOptions, KafkaSource, KafkaTransport, SaslMechanism},
};

pub(crate) fn transport(section: &EndpointSection) -> Result<KafkaTransport, Invalid> {
    let options = KafkaOptions::new(client(section)?);
    match mechanism(section) {
        Some(mechanism) => options.with_sasl(mechanism).build(),
        None => options.build(),
    }
}

pub(crate) fn source(section: &EndpointSection) -> Result<KafkaSource, Invalid> {
    let mut builder = KafkaSource::builder(client(section)?, section.required("topic")?);
    if let Some(mechanism) = mechanism(section) {
        builder = builder.with_sasl(mechanism);
    }
    if let Some(group) = section.string("group") {
        builder = builder.with_group(group);
    }
    if let Some(instance) = section.string("instance") {
        builder = builder.with_instance(instance);
    }
    builder.build()
}

fn client(section: &EndpointSection) -> Result<ClientOptions, Invalid> {
    let client = super::client(section)?;
    // The file has all keys of the login or none.
    Ok(match (section.string("user"), section.secret("password").map(Secret::reveal)) {
        (Some(user), Some(password)) => client.with_password(user, password),
        _ => client,
    })
}

fn mechanism(section: &EndpointSection) -> Option<SaslMechanism> {
    Some(match section.string("sasl")? {
        "scram-sha-256" => SaslMechanism::ScramSha256,
        "scram-sha-512" => SaslMechanism::ScramSha512,
        _ => SaslMechanism::Plain,
    })
}
