//! Builder of a RabbitMQ source.

use super::{RabbitMqSource, decode::Decoder};
use crate::{
    rabbitmq::{broker::BrokerOptions, connection::ConnectionManager},
    timeout::check_timeout,
};
use lapin::types::ShortString;
use postrider_core::Invalid;
use std::{fmt, path::PathBuf, time::Duration};

/// Builder of a [`RabbitMqSource`]; [`build`](Self::build) checks the settings.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RabbitMqSourceBuilder {
    broker: BrokerOptions,
    queue: String,
    prefetch: u16,
    is_quorum: bool,
    prefix: Option<String>,
    connect_timeout: Duration,
}

impl RabbitMqSourceBuilder {
    pub(super) fn new(url: String, queue: String) -> Self {
        Self {
            broker: BrokerOptions::new(url),
            queue,
            prefetch: 250,
            is_quorum: false,
            prefix: None,
            connect_timeout: Duration::from_secs(10),
        }
    }

    /// Prefetch: the broker delivers at most this many messages that are not yet acked. Default: 250.
    pub fn with_prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages;
        self
    }

    /// Whether the queue is a quorum queue. Default: `false`. Only quorum queues count deliveries, and AMQP does not show the type of a
    /// queue to a consumer. The [check](postrider_core::Source::check) reports a wrong setting.
    pub fn with_quorum(mut self, is_quorum: bool) -> Self {
        self.is_quorum = is_quorum;
        self
    }

    /// Additional header prefix of CloudEvents attributes. `ce-`, `cloudEvents:` and `cloudEvents_` are always recognized.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// CA bundle (PEM) used instead of Mozilla's bundled roots.
    pub fn with_ca_bundle(mut self, file: impl Into<PathBuf>) -> Self {
        self.broker.ca_bundle = Some(file.into());
        self
    }

    /// Client certificate (mutual TLS) and its private key, both PEM files.
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.broker.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Timeout for opening a connection, opening a channel, a reply, and closing the connection. Default: 10 seconds.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Checks the settings and creates the source. It connects with the first receive.
    ///
    /// # Errors
    /// Names the first invalid setting and the allowed values. The error never contains the URL, which may hold a password.
    pub fn build(self) -> Result<RabbitMqSource, Invalid> {
        let broker = self.broker.build()?;
        let queue = ShortString::try_new(self.queue.as_str()).ok().filter(|name| !name.as_str().is_empty());
        let Some(queue) = queue else {
            return Err(Invalid::rule("queue", "must have a name of 1 to 255 bytes"));
        };
        if self.prefetch == 0 {
            return Err(Invalid::rule("prefetch", "is zero, which means unlimited in AMQP; give at least 1"));
        }
        if self.prefix.as_ref().is_some_and(String::is_empty) {
            return Err(Invalid::rule(
                "prefix",
                "is empty, so that every header would be an attribute; give one, such as ce-",
            ));
        }
        check_timeout("connect_timeout", self.connect_timeout)?;
        Ok(RabbitMqSource {
            manager: ConnectionManager::new(broker, self.connect_timeout),
            decoder: Decoder::new(self.queue, self.prefix),
            queue,
            prefetch: self.prefetch,
            is_quorum: self.is_quorum,
            response_timeout: self.connect_timeout,
            current: Default::default(),
            opening: Default::default(),
            is_closed: Default::default(),
        })
    }
}

impl fmt::Debug for RabbitMqSourceBuilder {
    /// Omits the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqSourceBuilder")
            .field("queue", &self.queue)
            .field("prefetch", &self.prefetch)
            .field("is_quorum", &self.is_quorum)
            .finish_non_exhaustive()
    }
}
