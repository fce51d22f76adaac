//! Builds the transport of a destination. Nothing connects yet: the relay handles a destination that is unavailable.

use crate::{
    brokers,
    config::{EndpointSection, Kind},
    problem::{Code, Problem},
};
use postrider::{Invalid, Transport, transports::stdout::LineTransport};
use std::{path::Path, sync::Arc};

/// `file` and `name` are for error messages.
pub(crate) fn build(
    file: &Path,
    name: &str,
    section: &EndpointSection,
) -> Result<Arc<dyn Transport>, Problem> {
    transport(section).map_err(|error| {
        let what = format!("{}:{}: destinations.{name}: {error}", file.display(), section.line.0);
        Problem::new(what, format!("fix the section [destinations.{name}]")).with_code(Code::Config)
    })
}

fn transport(section: &EndpointSection) -> Result<Arc<dyn Transport>, Invalid> {
    Ok(match section.kind.value {
        Kind::Stdout => Arc::new(LineTransport::stdout()),
        Kind::Webhook => Arc::new(brokers::webhook::transport(section)?),
        #[cfg(feature = "rabbitmq")]
        Kind::RabbitMq => Arc::new(brokers::rabbitmq::transport(section)?),
        #[cfg(feature = "nats")]
        Kind::Nats => Arc::new(brokers::nats::transport(section)?),
        #[cfg(feature = "redis")]
        Kind::Redis => Arc::new(brokers::redis::transport(section)?),
        #[cfg(feature = "kafka")]
        Kind::Kafka => Arc::new(brokers::kafka::transport(section)?),
        #[cfg(feature = "sqs")]
        Kind::Sqs => Arc::new(brokers::aws::sqs(section)?),
        #[cfg(feature = "sns")]
        Kind::Sns => Arc::new(brokers::aws::sns(section)?),
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
