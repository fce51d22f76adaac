//! Makes the transport of a destination. Nobody is connected to yet: one that is down later is the relay's business.

use crate::{
    config::{DestinationSection, Kind},
    problem::{Code, Problem},
};
use postrider::{
    Invalid, Transport,
    transports::{
        http::{HttpOptions, HttpTransport, signature},
        stdout::LineTransport,
    },
};
use std::{path::Path, sync::Arc};

/// `file` and `name` say where it stands.
pub(crate) fn build(
    file: &Path,
    name: &str,
    section: &DestinationSection,
) -> Result<Arc<dyn Transport>, Problem> {
    made(section).map_err(|error| {
        let what = format!("{}:{}: destinations.{name}: {error}", file.display(), section.line);
        Problem::new(what, format!("change what stands below [destinations.{name}]")).coded(Code::Config)
    })
}

fn made(section: &DestinationSection) -> Result<Arc<dyn Transport>, Invalid> {
    match section.kind.value {
        Kind::Stdout => Ok(Arc::new(LineTransport::stdout())),
        Kind::Webhook => webhook(section),
        #[cfg(feature = "rabbitmq")]
        Kind::RabbitMq => {
            Ok(Arc::new(postrider::transports::rabbitmq::RabbitMqTransport::new(url(section)?)?))
        }
        #[cfg(feature = "nats")]
        Kind::Nats => Ok(Arc::new(postrider::transports::nats::NatsTransport::connect(url(section)?)?)),
        #[cfg(feature = "redis")]
        Kind::Redis => Ok(Arc::new(postrider::transports::redis::RedisTransport::connect(url(section)?)?)),
        #[cfg(feature = "kafka")]
        Kind::Kafka => Ok(Arc::new(postrider::transports::kafka::KafkaTransport::connect(url(section)?)?)),
        #[cfg(feature = "sqs")]
        Kind::Sqs => sqs(section),
        #[cfg(not(all(
            feature = "rabbitmq",
            feature = "nats",
            feature = "redis",
            feature = "kafka",
            feature = "sqs"
        )))]
        kind => Err(Invalid::rule("kind", format!("{kind} is not in this build"))),
    }
}

fn webhook(section: &DestinationSection) -> Result<Arc<dyn Transport>, Invalid> {
    let mut options = match &section.url {
        Some(url) => HttpOptions::below(url.reveal())?,
        None => HttpOptions::new(),
    };
    if let Some(secret) = &section.secret {
        options = options.with_secret(signature::Secret::parse(secret.reveal())?);
    }
    if section.allow_http.value {
        options = options.allow_http();
    }
    for network in &section.allow_networks.value {
        options = options.allow_network(network)?;
    }
    Ok(Arc::new(HttpTransport::new(options)?))
}

#[cfg(any(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka"))]
fn url(section: &DestinationSection) -> Result<&str, Invalid> {
    section.url.as_ref().map(|url| url.reveal()).ok_or_else(|| Invalid::rule("url", "is missing"))
}

#[cfg(feature = "sqs")]
fn sqs(section: &DestinationSection) -> Result<Arc<dyn Transport>, Invalid> {
    use postrider::transports::sqs::{AwsOptions, SqsTransport};
    let mut options = AwsOptions::new();
    if let Some(url) = &section.url {
        options = options.with_endpoint_url(url.reveal());
    }
    if let Some(region) = &section.region {
        options = options.with_region(region.as_str());
    }
    Ok(Arc::new(SqsTransport::new(options)?))
}
