//! Makes the source of a consumer. Nobody is connected to yet.

use crate::{
    config::{ConsumerSection, Kind, SourceSection},
    problem::Problem,
};
use axum::Router;
use postrider::{
    Invalid, Source,
    transports::http::{HttpSource, signature},
};
use std::{net::SocketAddr, path::Path, sync::Arc};

/// A source, and what has to be served for it: webhooks come to a router.
pub(crate) struct Received {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) served: Option<(SocketAddr, Router)>,
}

/// `file` says where it stands.
pub(crate) fn build(file: &Path, section: &ConsumerSection) -> Result<Received, Problem> {
    made(&section.source).map_err(|error| {
        let (line, name) = (section.source.line.0, &section.name.value);
        let what = format!("{}:{line}: consumer {name}: {error}", file.display());
        Problem::new(what, "change the `source` of this consumer")
    })
}

fn made(section: &SourceSection) -> Result<Received, Invalid> {
    let source: Result<Arc<dyn Source>, Invalid> = match section.kind.value {
        Kind::Webhook => return webhooks(section),
        #[cfg(feature = "rabbitmq")]
        Kind::RabbitMq => {
            use postrider::transports::rabbitmq::RabbitMqSource;
            let builder = RabbitMqSource::builder(section.url()?, section.needed("queue")?);
            Ok(Arc::new(builder.with_quorum(section.flag("quorum")).build()?))
        }
        #[cfg(feature = "nats")]
        Kind::Nats => {
            use postrider::transports::nats::NatsSource;
            let mut builder =
                NatsSource::builder(section.url()?, section.needed("stream")?, section.needed("durable")?);
            if let Some(subject) = section.text("subject") {
                builder = builder.with_created_consumer(subject, ACK_WAIT);
            }
            Ok(Arc::new(builder.build()?))
        }
        #[cfg(feature = "redis")]
        Kind::Redis => {
            use postrider::transports::redis::RedisSource;
            let mut builder = RedisSource::builder(section.url()?, section.needed("stream")?);
            if let Some(group) = section.text("group") {
                builder = builder.with_group(group);
            }
            if section.flag("create_group") {
                builder = builder.create_group();
            }
            Ok(Arc::new(builder.build()?))
        }
        #[cfg(feature = "kafka")]
        Kind::Kafka => {
            use postrider::transports::kafka::KafkaSource;
            let mut builder = KafkaSource::builder(section.url()?, section.needed("topic")?);
            if let Some(group) = section.text("group") {
                builder = builder.with_group(group);
            }
            if let Some(instance) = section.text("instance") {
                builder = builder.with_instance(instance);
            }
            Ok(Arc::new(builder.build()?))
        }
        #[cfg(feature = "sqs")]
        Kind::Sqs => {
            use postrider::transports::sqs::{AwsOptions, SqsSource};
            let mut options = AwsOptions::new();
            if let Some(url) = &section.url {
                options = options.with_endpoint_url(url.reveal());
            }
            if let Some(region) = section.text("region") {
                options = options.with_region(region);
            }
            Ok(Arc::new(SqsSource::connect(options, section.needed("queue")?)?))
        }
        kind => Err(Invalid::rule("kind", format!("nothing is received by {kind} in this build"))),
    };
    Ok(Received { source: source?, served: None })
}

/// A consumer that is made where it is not there gives messages so long before they come again.
#[cfg(feature = "nats")]
const ACK_WAIT: std::time::Duration = std::time::Duration::from_secs(30);

fn webhooks(section: &SourceSection) -> Result<Received, Invalid> {
    let builder = HttpSource::builder(section.needed("path")?);
    let builder = match &section.secret {
        Some(secret) => builder.with_secret(signature::Secret::parse(secret.reveal())?),
        None => builder.without_signatures(),
    };
    let source = builder.build()?;
    let listen = section.needed("listen")?;
    let address = listen
        .parse()
        .map_err(|_| Invalid::rule("listen", format!("{listen:?} is no address such as 127.0.0.1:8080")))?;
    let served = Some((address, source.router()));
    Ok(Received { source: Arc::new(source), served })
}
