//! Makes the source of a consumer. Nobody is connected to yet.

use crate::{
    brokers,
    config::{ConsumerSection, Kind, Place},
    problem::Problem,
};
use axum::Router;
use postrider::{Invalid, Source};
use std::{net::SocketAddr, path::Path, sync::Arc};

/// A source, and what has to be served for it: webhooks come to a router.
pub(crate) struct Received {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) served: Option<(SocketAddr, Router)>,
}

#[cfg(any(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka", feature = "sqs"))]
impl Received {
    /// From one that is asked for messages.
    fn asked(source: impl Source) -> Self {
        Self { source: Arc::new(source), served: None }
    }
}

/// `file` says where it stands.
pub(crate) fn build(file: &Path, section: &ConsumerSection) -> Result<Received, Problem> {
    made(&section.source).map_err(|error| {
        let (line, name) = (section.source.line.0, &section.name.value);
        let what = format!("{}:{line}: consumer {name}: {error}", file.display());
        Problem::new(what, "change the `source` of this consumer")
    })
}

fn made(place: &Place) -> Result<Received, Invalid> {
    Ok(match place.kind.value {
        Kind::Webhook => {
            let (source, address, router) = brokers::webhook::source(place)?;
            Received { source: Arc::new(source), served: Some((address, router)) }
        }
        #[cfg(feature = "rabbitmq")]
        Kind::RabbitMq => Received::asked(brokers::rabbitmq::source(place)?),
        #[cfg(feature = "nats")]
        Kind::Nats => Received::asked(brokers::nats::source(place)?),
        #[cfg(feature = "redis")]
        Kind::Redis => Received::asked(brokers::redis::source(place)?),
        #[cfg(feature = "kafka")]
        Kind::Kafka => Received::asked(brokers::kafka::source(place)?),
        #[cfg(feature = "sqs")]
        Kind::Sqs => Received::asked(brokers::aws::sqs_source(place)?),
        kind => return Err(Invalid::rule("kind", format!("nothing is received by {kind} in this build"))),
    })
}
