//! Builds the source of a consumer. Nothing connects yet.

use crate::{
    brokers,
    config::{ConsumerSection, EndpointSection, Kind},
    problem::Problem,
};
use axum::Router;
use postrider::{Invalid, Source};
use std::{net::SocketAddr, path::Path, sync::Arc};

/// A source, and for webhooks the router to serve and its address.
pub(crate) struct Received {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) served: Option<(SocketAddr, Router)>,
}

#[cfg(any(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka", feature = "sqs"))]
impl Received {
    /// A source that pulls from a broker.
    fn pulled(source: impl Source) -> Self {
        Self { source: Arc::new(source), served: None }
    }
}

/// `file` is the configuration file, for error messages.
pub(crate) fn build(file: &Path, section: &ConsumerSection) -> Result<Received, Problem> {
    source(&section.source).map_err(|error| {
        let (line, name) = (section.source.line.0, &section.name.value);
        let what = format!("{}:{line}: consumer {name}: {error}", file.display());
        Problem::new(what, "fix the `source` of this consumer")
    })
}

fn source(section: &EndpointSection) -> Result<Received, Invalid> {
    Ok(match section.kind.value {
        Kind::Webhook => {
            let (source, address, router) = brokers::webhook::source(section)?;
            Received { source: Arc::new(source), served: Some((address, router)) }
        }
        #[cfg(feature = "rabbitmq")]
        Kind::RabbitMq => Received::pulled(brokers::rabbitmq::source(section)?),
        #[cfg(feature = "nats")]
        Kind::Nats => Received::pulled(brokers::nats::source(section)?),
        #[cfg(feature = "redis")]
        Kind::Redis => Received::pulled(brokers::redis::source(section)?),
        #[cfg(feature = "kafka")]
        Kind::Kafka => Received::pulled(brokers::kafka::source(section)?),
        #[cfg(feature = "sqs")]
        Kind::Sqs => Received::pulled(brokers::aws::sqs_source(section)?),
        kind => return Err(Invalid::rule("kind", format!("this build cannot receive from {kind}"))),
    })
}
