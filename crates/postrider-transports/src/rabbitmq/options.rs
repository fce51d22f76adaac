//! Options of a RabbitMQ transport.

use super::{RabbitMqTransport, broker::BrokerOptions, connection::ConnectionManager};
use postrider_core::{Capacity, Invalid};
use std::{
    fmt,
    path::PathBuf,
    sync::{Mutex, atomic::AtomicBool},
    time::Duration,
};
use tokio::sync::RwLock;

/// Connection and message options of a RabbitMQ transport; [`build`](Self::build) checks them.
///
/// ```
/// # use postrider_transports::rabbitmq::RabbitMqOptions;
/// # use std::time::Duration;
/// let rabbitmq = RabbitMqOptions::new("amqps://relay:secret@rabbit.example/shop")
///     .with_connect_timeout(Duration::from_secs(5))
///     .with_prefix("cloudEvents:")
///     .build()?;
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until they are built"]
pub struct RabbitMqOptions {
    broker: BrokerOptions,
    prefix: String,
    connect_timeout: Duration,
    batch_size: usize,
    message_bytes: usize,
}

impl RabbitMqOptions {
    /// The broker at `url`: `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. Without a path the virtual host is `/`; in
    /// the path it is written `%2f`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            broker: BrokerOptions::new(url.into()),
            prefix: "ce-".to_owned(),
            connect_timeout: Duration::from_secs(10),
            batch_size: 500,
            message_bytes: 16 << 20,
        }
    }

    /// Header prefix of CloudEvents attributes. Default: `ce-`. The binding for AMQP 1.0 uses `cloudEvents_` and `cloudEvents:`.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
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

    /// Timeout for opening a connection, opening a channel, and closing the connection. Default: 10 seconds.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
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
        let broker = self.broker.build()?;
        if self.connect_timeout.is_zero() {
            return wrong("connect_timeout", "is zero; give more than zero");
        }
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
            manager: ConnectionManager::new(broker, self.connect_timeout),
            prefix: self.prefix,
            capacity: capacity.with_batch_bytes(self.message_bytes),
            response_timeout: self.connect_timeout,
            one_by_one: Mutex::default(),
            in_flight: RwLock::default(),
            is_closed: AtomicBool::new(false),
        })
    }
}

impl fmt::Debug for RabbitMqOptions {
    /// Omits the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqOptions").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
