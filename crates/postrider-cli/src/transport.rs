//! Makes the transport of a destination. Nobody is connected to yet: one that is down later is the relay's business.

use crate::{
    brokers,
    config::{Kind, Place},
    problem::{Code, Problem},
};
use postrider::{Invalid, Transport, transports::stdout::LineTransport};
use std::{path::Path, sync::Arc};

/// `file` and `name` say where it stands.
pub(crate) fn build(file: &Path, name: &str, place: &Place) -> Result<Arc<dyn Transport>, Problem> {
    made(place).map_err(|error| {
        let what = format!("{}:{}: destinations.{name}: {error}", file.display(), place.line.0);
        Problem::new(what, format!("change what stands below [destinations.{name}]")).coded(Code::Config)
    })
}

fn made(place: &Place) -> Result<Arc<dyn Transport>, Invalid> {
    Ok(match place.kind.value {
        Kind::Stdout => Arc::new(LineTransport::stdout()),
        Kind::Webhook => Arc::new(brokers::webhook::transport(place)?),
        #[cfg(feature = "rabbitmq")]
        Kind::RabbitMq => Arc::new(brokers::rabbitmq::transport(place)?),
        #[cfg(feature = "nats")]
        Kind::Nats => Arc::new(brokers::nats::transport(place)?),
        #[cfg(feature = "redis")]
        Kind::Redis => Arc::new(brokers::redis::transport(place)?),
        #[cfg(feature = "kafka")]
        Kind::Kafka => Arc::new(brokers::kafka::transport(place)?),
        #[cfg(feature = "sqs")]
        Kind::Sqs => Arc::new(brokers::aws::sqs(place)?),
        #[cfg(feature = "sns")]
        Kind::Sns => Arc::new(brokers::aws::sns(place)?),
        #[cfg(not(all(
            feature = "rabbitmq",
            feature = "nats",
            feature = "redis",
            feature = "kafka",
            feature = "sqs",
            feature = "sns"
        )))]
        kind => return Err(Invalid::rule("kind", format!("{kind} is not in this build"))),
    })
}
