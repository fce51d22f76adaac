//! The settings of a Kafka transport.

use super::{
    KafkaTransport,
    cluster::{ClusterOptions, Properties, SaslMechanism, wrong_setting},
};
use crate::timeout::request_timeout;
use postrider_core::{ClientOptions, Invalid};
use rdkafka::{ClientConfig, producer::BaseProducer};
use std::{collections::BTreeMap, fmt, time::Duration};

const LINGER: Duration = Duration::from_millis(5);
/// Below the default limit of brokers (1,048,588).
const MESSAGE_BYTES: usize = 1_000_000;

/// The partition to which Java's clients map a key, too.
const DEFAULTS: Properties = &[("partitioner", "murmur2_random")];

/// Properties that cannot be changed: without them an accepted message could be lost, duplicated by the client or reordered.
const FIXED: Properties = &[
    // A message is accepted when all in-sync replicas have it.
    ("acks", "all"),
    // The broker recognises the client's retries, and keeps the order.
    ("enable.idempotence", "true"),
    // Automatic creation hides a typo, and creates the topic with the weakest settings.
    ("allow.auto.create.topics", "false"),
    ("delivery.report.only.error", "false"),
];

/// Other names of the same properties, and properties that these options have a method for.
const RESERVED: Properties = &[
    ("request.required.acks", "acks is always `all`"),
    ("bootstrap.servers", "name the servers in `new`"),
    ("metadata.broker.list", "name the servers in `new`"),
    ("message.timeout.ms", "use `ClientOptions::with_request_timeout`"),
    ("delivery.timeout.ms", "use `ClientOptions::with_request_timeout`"),
    ("message.max.bytes", "use `with_message_bytes`"),
    ("linger.ms", "use `with_linger`"),
    ("queue.buffering.max.ms", "use `with_linger`"),
    ("security.protocol", "choose kafka:// or kafka+ssl:// in the servers, and use `with_sasl`"),
    ("sasl.username", "use `ClientOptions::with_password`"),
    ("sasl.password", "use `ClientOptions::with_password`"),
    ("ssl.ca.location", "use `ClientOptions::with_trust`"),
    ("ssl.ca.pem", "use `ClientOptions::with_trust`"),
    ("transactional.id", "transactions are not supported; consumers recognise a retried message by its id"),
    ("enable.gapless.guarantee", "not supported: one refused record would end the client for all topics"),
    ("test.mock.num.brokers", "not supported: messages would go to a mock cluster"),
];

/// The compression of record batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// LZ4: little CPU, and as small as Snappy.
    Lz4,
    /// Snappy.
    Snappy,
}

/// The settings of a [`KafkaTransport`].
///
/// ```
/// # use postrider_core::ClientOptions;
/// # use postrider_transports::kafka::{Compression, KafkaOptions, SaslMechanism};
/// let client = ClientOptions::new("kafka://a.example:9092,b.example:9092").with_password("relay", "secret");
/// let kafka = KafkaOptions::new(client)
///     .with_sasl(SaslMechanism::ScramSha512)
///     .with_compression(Compression::Lz4)
///     .with_property("client.id", "shop")
///     .build()?;
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until they are built"]
pub struct KafkaOptions {
    pub(super) cluster: ClusterOptions,
    compression: Compression,
    linger: Duration,
    pub(super) request_timeout: Duration,
    pub(super) message_bytes: usize,
}

impl KafkaOptions {
    /// The cluster of these bootstrap servers: `kafka://host:9092`, or `kafka+ssl://host:9093` with TLS; separate several with commas.
    /// The client learns the other brokers from them.
    ///
    /// The connect timeout is also the time within which a server has to respond first. A message that is not acknowledged within the
    /// request timeout may or may not have arrived; within that time the client retries by itself, and the broker recognises the
    /// retries. Keep it below the timeout of the relay's destination. The keepalive uses the interval of the operating system.
    pub fn new(client: impl Into<ClientOptions>) -> Self {
        let client = client.into();
        Self {
            request_timeout: request_timeout(&client),
            cluster: ClusterOptions::new(client),
            compression: Compression::None,
            linger: LINGER,
            message_bytes: MESSAGE_BYTES,
        }
    }

    /// Authenticates with SASL, by this mechanism and the user and password of the client.
    pub fn with_sasl(mut self, mechanism: SaslMechanism) -> Self {
        self.cluster.sasl = Some(mechanism);
        self
    }

    /// Compresses record batches. Default: no compression.
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// How long the client waits for more records before it sends a batch. Default: 5 milliseconds, as in librdkafka. With less, the
    /// client's thread spins while brokers are slow.
    pub fn with_linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// Maximum message size in bytes; larger messages are rejected permanently. Default: 1,000,000, a little below the brokers' default
    /// (`message.max.bytes`, and `max.message.bytes` of a topic).
    pub fn with_message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Sets a property of librdkafka that has no method here. Properties on which the delivery guarantees rest cannot be weakened.
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.cluster.properties.insert(name.into(), value.into());
        self
    }

    /// Validates the settings and creates the transport, which connects when the first message is published.
    ///
    /// # Errors
    /// Names the first invalid setting and its fix. The error never contains a password.
    pub fn build(mut self) -> Result<KafkaTransport, Invalid> {
        self.cluster.validate(FIXED, RESERVED)?;
        check_partitioner(&self.cluster.properties)?;
        if !(1_000..=1_000_000_000).contains(&self.message_bytes) {
            return Err(Invalid::rule("message_bytes", "must be from 1,000 to 1,000,000,000"));
        }
        if self.linger >= self.request_timeout {
            return Err(Invalid::rule(
                "linger",
                "must be shorter than the request timeout; no message would be acknowledged in time",
            ));
        }
        // A client without servers connects to none: it finds contradicting settings now, not with the first message.
        let mut trial = self.config()?;
        trial.remove("bootstrap.servers");
        trial.create::<BaseProducer>().map_err(|error| wrong_setting(&error))?;
        Ok(KafkaTransport::with(self))
    }

    /// The configuration of the client.
    pub(super) fn config(&self) -> Result<ClientConfig, Invalid> {
        let milliseconds = |time: Duration| time.as_millis().to_string();
        let mut config = self.cluster.config(DEFAULTS, FIXED)?;
        config
            .set("linger.ms", milliseconds(self.linger))
            .set("message.max.bytes", self.message_bytes.to_string())
            // The client's own limit, for calls that were cancelled. A call that waits gives up earlier, and for all its messages at
            // the same moment: if each expired by itself, the next message of its key could be sent before its retry.
            .set("message.timeout.ms", milliseconds(self.request_timeout * 2));
        if let Compression::Lz4 | Compression::Snappy = self.compression {
            let name = if self.compression == Compression::Lz4 { "lz4" } else { "snappy" };
            config.set("compression.type", name);
        }
        Ok(config)
    }
}

/// Refuses partitioners that spread the messages of one key over partitions.
fn check_partitioner(properties: &BTreeMap<String, String>) -> Result<(), Invalid> {
    let keyed = ["murmur2_random", "consistent_random", "fnv1a_random"];
    match properties.get("partitioner") {
        Some(value) if value.ends_with("random") && !keyed.contains(&value.as_str()) => Err(Invalid::rule(
            "properties",
            "partitioner: this one ignores keys and loses the order of a key; use murmur2_random, consistent_random or fnv1a_random",
        )),
        _ => Ok(()),
    }
}

impl fmt::Debug for KafkaOptions {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaOptions").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
