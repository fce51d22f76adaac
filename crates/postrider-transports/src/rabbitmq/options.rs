//! Options of a RabbitMQ transport.

use super::{RabbitMqTransport, broker::Broker, connection::ConnectionManager};
use postrider_core::{Capacity, ClientOptions, Invalid};
use std::{
    fmt,
    sync::{Mutex, atomic::AtomicBool},
};
use tokio::sync::RwLock;

/// The options of a RabbitMQ transport; [`build`](Self::build) checks them.
///
/// ```
/// # use postrider_core::ClientOptions;
/// # use postrider_transports::rabbitmq::RabbitMqOptions;
/// # use std::time::Duration;
/// let client = ClientOptions::new("amqp://relay:secret@rabbit.example/shop")
///     .with_connect_timeout(Duration::from_secs(3));
/// let rabbitmq = RabbitMqOptions::new(client).with_prefix("cloudEvents:").build()?;
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until they are built"]
pub struct RabbitMqOptions {
    client: ClientOptions,
    prefix: String,
    batch_size: usize,
    message_bytes: usize,
}

impl RabbitMqOptions {
    /// The broker at this URL: `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. Without a path the virtual host is `/`; in
    /// the path it is written `%2f`. The connect timeout covers the connection, the request timeout a channel, a check and the closing of
    /// the connection; the keepalive is the heartbeat, 10 seconds by default.
    pub fn new(client: impl Into<ClientOptions>) -> Self {
        Self { client: client.into(), prefix: "ce-".to_owned(), batch_size: 500, message_bytes: 16 << 20 }
    }

    /// Header prefix of CloudEvents attributes. Default: `ce-`. The binding for AMQP 1.0 uses `cloudEvents_` and `cloudEvents:`.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Batch size: at most this many messages are published together. Default: 500.
    pub fn with_batch_size(mut self, messages: usize) -> Self {
        self.batch_size = messages;
        self
    }

    /// Rejects larger messages. Default: 16 MiB, the default limit of RabbitMQ 4 (`max_message_size`).
    pub fn with_message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Checks the options and creates the transport. It connects with the first publish.
    ///
    /// # Errors
    /// Names the first invalid option and the allowed values. The error never contains the URL, which may hold a password.
    pub fn build(self) -> Result<RabbitMqTransport, Invalid> {
        let wrong = |field: &'static str, rule: &'static str| Err(Invalid::rule(field, rule));
        let broker = Broker::new(&self.client)?;
        if self.batch_size == 0 {
            return wrong("batch_size", "is zero; give at least 1");
        }
        if self.message_bytes == 0 {
            return wrong("message_bytes", "is zero; give at least 1");
        }
        if self.prefix.is_empty() || self.prefix.len() > 32 || !self.prefix.is_ascii() {
            return wrong("prefix", "must have 1 to 32 ASCII characters, such as ce-");
        }
        let capacity = Capacity::of(self.batch_size).with_message_bytes(self.message_bytes);
        Ok(RabbitMqTransport {
            prefix: self.prefix,
            capacity: capacity.with_batch_bytes(self.message_bytes),
            request_timeout: broker.request_timeout,
            manager: ConnectionManager::new(broker),
            one_by_one: Mutex::default(),
            in_flight: RwLock::default(),
            is_closed: AtomicBool::new(false),
        })
    }
}

impl fmt::Debug for RabbitMqOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqOptions")
            .field("client", &self.client)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}
