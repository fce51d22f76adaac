//! What a transport to Kafka needs.

use super::{
    KafkaTransport,
    cluster::{ClusterOptions, Named, SaslMechanism, wrong_setting},
};
use crate::timeout::check_timeout;
use postrider_core::Invalid;
use rdkafka::{ClientConfig, producer::BaseProducer};
use std::{collections::BTreeMap, fmt, path::PathBuf, time::Duration};

/// Below the 15 seconds after which a relay gives up a call.
const ACK_TIMEOUT: Duration = Duration::from_secs(10);
const LINGER: Duration = Duration::from_millis(5);
/// Below what brokers take unless told otherwise (1,048,588).
const MESSAGE_BYTES: usize = 1_000_000;

/// Where Java's clients put a key, too.
const USUAL: Named = &[("partitioner", "murmur2_random")];

/// What is always so: without it something accepted could be lost, doubled by the client or overtaken.
const FIXED: Named = &[
    // Accepted is what all in-sync replicas have.
    ("acks", "all"),
    // What the client sends again is recognised by the broker, and nothing overtakes.
    ("enable.idempotence", "true"),
    // A topic that nobody made hides a typo, and is made with the weakest settings.
    ("allow.auto.create.topics", "false"),
    ("delivery.report.only.error", "false"),
];

/// Other names of the same settings, or of settings that this builder has a method for.
const OURS: Named = &[
    ("request.required.acks", "acks is always `all`"),
    ("bootstrap.servers", "name the servers in `new`"),
    ("metadata.broker.list", "name the servers in `new`"),
    ("message.timeout.ms", "use `with_ack_timeout`"),
    ("delivery.timeout.ms", "use `with_ack_timeout`"),
    ("message.max.bytes", "use `with_message_bytes`"),
    ("linger.ms", "use `with_linger`"),
    ("queue.buffering.max.ms", "use `with_linger`"),
    ("security.protocol", "begin the servers with kafka:// or kafka+ssl://, and use `with_sasl`"),
    ("sasl.username", "use `with_sasl`"),
    ("sasl.password", "use `with_sasl`"),
    ("ssl.ca.location", "use `with_root_certificates`"),
    ("transactional.id", "transactions are not supported: what is sent again is recognised by its id"),
    ("enable.gapless.guarantee", "one refused record would end the client for all topics"),
    ("test.mock.num.brokers", "it would publish to nobody"),
];

/// How batches of records are made smaller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// LZ4: cheap, and as small as the other cheap ones.
    Lz4,
    /// Snappy.
    Snappy,
}

/// How Kafka is reached, and what is written.
///
/// ```
/// # use postrider_transports::kafka::{Compression, KafkaOptions, SaslMechanism};
/// let kafka = KafkaOptions::new("kafka+ssl://a.example:9093,b.example:9093")
///     .with_sasl(SaslMechanism::ScramSha512, "relay", "secret")
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
    pub(super) ack_timeout: Duration,
    pub(super) message_bytes: usize,
}

impl KafkaOptions {
    /// The cluster that these servers are of: `kafka://host:9092`, or `kafka+ssl://host:9093` for TLS; several with commas in between.
    /// The others of the cluster are learned from them.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            cluster: ClusterOptions::new(servers.into()),
            compression: Compression::None,
            linger: LINGER,
            ack_timeout: ACK_TIMEOUT,
            message_bytes: MESSAGE_BYTES,
        }
    }

    /// Says who it is with user and password.
    pub fn with_sasl(
        mut self,
        mechanism: SaslMechanism,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.cluster.sasl = Some((mechanism, user.into(), password.into()));
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of those of the system.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.cluster.root_certificates = Some(file.into());
        self
    }

    /// Shows this certificate; both files have the format PEM.
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.cluster.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Makes batches of records smaller; it does not unless said so.
    pub fn with_compression(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }

    /// Waits so long for more records before a batch of them is sent; 5 milliseconds unless said otherwise, as the client does by itself. With
    /// less, its thread spins while brokers are slow.
    pub fn with_linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    /// What is not acknowledged after so long may have arrived, or not; 10 seconds unless said otherwise. Within that time the client
    /// sends again by itself, and the broker recognises it. Keep it below the timeout of the relay's destination.
    pub fn with_ack_timeout(mut self, timeout: Duration) -> Self {
        self.ack_timeout = timeout;
        self
    }

    /// Waits so long for a server to answer at all; 5 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.cluster.connect_timeout = timeout;
        self
    }

    /// Refuses messages of more bytes; 1,000,000 unless said otherwise, which is a little less than what brokers take by default
    /// (`message.max.bytes`, and `max.message.bytes` of a topic).
    pub fn with_message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Sets a property of librdkafka that has no method here. Those that the promise rests on can be named, and not weakened.
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.cluster.properties.insert(name.into(), value.into());
        self
    }

    /// Checks everything and makes the transport. It connects with the first message.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows a password.
    pub fn build(mut self) -> Result<KafkaTransport, Invalid> {
        self.cluster.settle(FIXED, OURS)?;
        check_partitioner(&self.cluster.properties)?;
        check_timeout("ack_timeout", self.ack_timeout)?;
        if !(1_000..=1_000_000_000).contains(&self.message_bytes) {
            return Err(Invalid::rule("message_bytes", "give at least 1,000, and at most 1,000,000,000"));
        }
        if self.linger >= self.ack_timeout {
            return Err(Invalid::rule(
                "linger",
                "is not shorter than `with_ack_timeout`; nothing would be acknowledged",
            ));
        }
        // One that knows no server, and so connects to none: settings that contradict each other are found here, and not by the
        // first message.
        let mut trial = self.config();
        trial.remove("bootstrap.servers");
        trial.create::<BaseProducer>().map_err(|error| wrong_setting(&error))?;
        Ok(KafkaTransport::with(self))
    }

    /// What the client is told.
    pub(super) fn config(&self) -> ClientConfig {
        let milliseconds = |time: Duration| time.as_millis().to_string();
        let mut config = self.cluster.config(USUAL, FIXED);
        config
            .set("linger.ms", milliseconds(self.linger))
            .set("message.max.bytes", self.message_bytes.to_string())
            // A bound of the client's own, for when nobody waits. Whoever waits gives up earlier, for all messages of a call
            // at one moment: were each to expire by itself, the next of its key could be sent in its stead.
            .set("message.timeout.ms", milliseconds(self.ack_timeout * 2));
        if let Compression::Lz4 | Compression::Snappy = self.compression {
            let name = if self.compression == Compression::Lz4 { "lz4" } else { "snappy" };
            config.set("compression.type", name);
        }
        config
    }
}

/// The messages of a key stay together.
fn check_partitioner(properties: &BTreeMap<String, String>) -> Result<(), Invalid> {
    let keeping = ["murmur2_random", "consistent_random", "fnv1a_random"];
    match properties.get("partitioner") {
        Some(value) if value.ends_with("random") && !keeping.contains(&value.as_str()) => Err(Invalid::rule(
            "properties",
            "partitioner: the messages of a key would go anywhere, in any order",
        )),
        _ => Ok(()),
    }
}

impl fmt::Debug for KafkaOptions {
    /// Shows no user and no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaOptions").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}
