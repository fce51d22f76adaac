//! Builder of a RabbitMQ source.

use super::{RabbitMqSource, decode::Decoder};
use crate::{
    byte_budget::{ByteBudget, MAX_BYTES_IN_FLIGHT},
    rabbitmq::{broker::Broker, connection::ConnectionManager},
    session::Session,
};
use lapin::types::ShortString;
use postrider_core::{ClientOptions, Invalid};
use std::fmt;

/// Builder of a [`RabbitMqSource`]; [`build`](Self::build) checks the settings.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RabbitMqSourceBuilder {
    client: ClientOptions,
    queue: String,
    prefetch: u16,
    is_quorum: bool,
    prefix: Option<String>,
    max_bytes: usize,
}

impl RabbitMqSourceBuilder {
    pub(super) fn new(client: ClientOptions, queue: String) -> Self {
        Self { client, queue, prefetch: 250, is_quorum: false, prefix: None, max_bytes: MAX_BYTES_IN_FLIGHT }
    }

    /// Prefetch: the broker delivers at most this many messages that are not yet acked. Default: 250.
    pub fn with_prefetch(mut self, messages: u16) -> Self {
        self.prefetch = messages;
        self
    }

    /// Bytes in flight: the source holds messages of about this many bytes that are not acked yet, and one batch more. Default: 64 MiB.
    /// AMQP counts messages, so the source lowers the prefetch while messages are large, and raises it again.
    /// A message that is larger is received alone.
    pub fn with_max_bytes_in_flight(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
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

    /// Checks the settings and creates the source. It connects with the first receive.
    ///
    /// # Errors
    /// Names the first invalid setting and the allowed values. The error never contains the URL, which may hold a password.
    pub fn build(self) -> Result<RabbitMqSource, Invalid> {
        let broker = Broker::new(&self.client)?;
        let queue = ShortString::try_new(self.queue.as_str()).ok().filter(|name| !name.as_str().is_empty());
        let Some(queue) = queue else {
            return Err(Invalid::rule("queue", "must have a name of 1 to 255 bytes"));
        };
        if self.prefetch == 0 {
            return Err(Invalid::rule("prefetch", "is zero, which means unlimited in AMQP; give at least 1"));
        }
        ByteBudget::check(self.max_bytes)?;
        if self.prefix.as_ref().is_some_and(String::is_empty) {
            return Err(Invalid::rule(
                "prefix",
                "is empty, so that every header would be an attribute; give one, such as ce-",
            ));
        }
        // For a connection and a subscription, twice: `RabbitMqSource::subscribe`.
        let subscribe_timeout = (broker.connect_timeout + broker.request_timeout) * 2;
        Ok(RabbitMqSource {
            request_timeout: broker.request_timeout,
            manager: ConnectionManager::new(broker),
            decoder: Decoder::new(self.queue, self.prefix),
            queue,
            prefetch: self.prefetch,
            is_quorum: self.is_quorum,
            budget: ByteBudget::new(self.max_bytes),
            session: Session::new(subscribe_timeout),
        })
    }
}

impl fmt::Debug for RabbitMqSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqSourceBuilder")
            .field("client", &self.client)
            .field("queue", &self.queue)
            .field("prefetch", &self.prefetch)
            .field("is_quorum", &self.is_quorum)
            .finish_non_exhaustive()
    }
}
