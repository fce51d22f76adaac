//! Kafka.

use crate::config::{Place, Secret};
use postrider::{
    Invalid,
    transports::kafka::{KafkaOptions, KafkaSource, KafkaTransport, SaslMechanism},
};

/// Also tells a builder who we are.
macro_rules! reached {
    ($builder:expr, $place:expr) => {{
        let place = $place;
        let mut builder = trusting!($builder, place);
        if let Some((mechanism, user, password)) = login(place) {
            builder = builder.with_sasl(mechanism, user, password);
        }
        builder
    }};
}

pub(crate) fn transport(place: &Place) -> Result<KafkaTransport, Invalid> {
    reached!(KafkaOptions::new(place.url()?), place).build()
}

pub(crate) fn source(place: &Place) -> Result<KafkaSource, Invalid> {
    let mut builder = reached!(KafkaSource::builder(place.url()?, place.needed("topic")?), place);
    if let Some(group) = place.text("group") {
        builder = builder.with_group(group);
    }
    if let Some(instance) = place.text("instance") {
        builder = builder.with_instance(instance);
    }
    builder.build()
}

/// Who we are there. The file has all of it or nothing.
fn login(place: &Place) -> Option<(SaslMechanism, &str, &str)> {
    let mechanism = match place.text("sasl")? {
        "scram-sha-256" => SaslMechanism::ScramSha256,
        "scram-sha-512" => SaslMechanism::ScramSha512,
        _ => SaslMechanism::Plain,
    };
    Some((mechanism, place.text("user")?, place.secret("password").map(Secret::reveal)?))
}
