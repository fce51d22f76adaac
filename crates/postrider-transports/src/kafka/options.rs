//! What a transport to Kafka needs.

use super::{KafkaTransport, answer};
use crate::timeout::check_timeout;
use postrider_core::Invalid;
use rdkafka::{ClientConfig, error::KafkaError, producer::BaseProducer};
use std::{collections::BTreeMap, fmt, fs::File, path::PathBuf, time::Duration};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Below the 15 seconds after which a relay gives up a call.
const ACK_TIMEOUT: Duration = Duration::from_secs(10);
const LINGER: Duration = Duration::from_millis(5);
/// Below what brokers take unless told otherwise (1,048,588).
const MESSAGE_BYTES: usize = 1_000_000;

/// What is always so: without it something accepted could be lost, doubled by the client or overtaken.
const FIXED: &[(&str, &str)] = &[
    // Accepted is what all in-sync replicas have.
    ("acks", "all"),
    // What the client sends again is recognised by the broker, and nothing overtakes.
    ("enable.idempotence", "true"),
    // A topic that nobody made hides a typo, and is made with the weakest settings.
    ("allow.auto.create.topics", "false"),
    ("delivery.report.only.error", "false"),
];

/// Other names of the same settings, or of settings that this builder has a method for.
const OURS: &[(&str, &str)] = &[
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

/// How it says who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SaslMechanism {
    /// The password goes over the wire: only with TLS.
    Plain,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
}

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
    url: String,
    pub(super) servers: String,
    is_tls: bool,
    sasl: Option<(SaslMechanism, String, String)>,
    root_certificates: Option<PathBuf>,
    client_certificate: Option<(PathBuf, PathBuf)>,
    compression: Compression,
    linger: Duration,
    pub(super) ack_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) message_bytes: usize,
    properties: BTreeMap<String, String>,
}

impl KafkaOptions {
    /// The cluster that these servers are of: `kafka://host:9092`, or `kafka+ssl://host:9093` for TLS; several with commas in between.
    /// The others of the cluster are learned from them.
    pub fn new(servers: impl Into<String>) -> Self {
        Self {
            url: servers.into(),
            servers: String::new(),
            is_tls: false,
            sasl: None,
            root_certificates: None,
            client_certificate: None,
            compression: Compression::None,
            linger: LINGER,
            ack_timeout: ACK_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            message_bytes: MESSAGE_BYTES,
            properties: BTreeMap::new(),
        }
    }

    /// Says who it is with user and password.
    pub fn with_sasl(
        mut self,
        mechanism: SaslMechanism,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.sasl = Some((mechanism, user.into(), password.into()));
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of those of the system.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.root_certificates = Some(file.into());
        self
    }

    /// Shows this certificate; both files have the format PEM.
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.client_certificate = Some((certificate.into(), key.into()));
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
        self.connect_timeout = timeout;
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
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Checks everything and makes the transport. It connects with the first message.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows a password.
    pub fn build(mut self) -> Result<KafkaTransport, Invalid> {
        (self.servers, self.is_tls) = servers(&self.url)?;
        self.url = String::new();
        check_timeout("ack_timeout", self.ack_timeout)?;
        check_timeout("connect_timeout", self.connect_timeout)?;
        if !(1_000..=1_000_000_000).contains(&self.message_bytes) {
            return Err(Invalid::rule("message_bytes", "give at least 1,000, and at most 1,000,000,000"));
        }
        if self.linger >= self.ack_timeout {
            return Err(Invalid::rule(
                "linger",
                "is not shorter than `with_ack_timeout`; nothing would be acknowledged",
            ));
        }
        if !self.is_tls && (self.root_certificates.is_some() || self.client_certificate.is_some()) {
            return Err(Invalid::rule(
                "url",
                "has no TLS and there are certificates: begin it with kafka+ssl://",
            ));
        }
        let certificates = self.client_certificate.iter().flat_map(|(certificate, key)| [certificate, key]);
        for file in certificates.chain(&self.root_certificates) {
            if let Err(error) = File::open(file) {
                return Err(Invalid::rule(
                    "certificate",
                    format!("{} cannot be read: {error}", file.display()),
                ));
            }
        }
        for (name, value) in &self.properties {
            check_property(name, value)?;
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
        let mut config = ClientConfig::new();
        // Where Java's clients put a key, too.
        config
            .set("client.id", "postrider")
            .set("partitioner", "murmur2_random")
            .set("reconnect.backoff.max.ms", "1000");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        for (name, value) in FIXED {
            config.set(*name, *value);
        }
        config
            .set("bootstrap.servers", &self.servers)
            .set("linger.ms", milliseconds(self.linger))
            .set("message.max.bytes", self.message_bytes.to_string())
            // A bound of the client's own, for when nobody waits. Whoever waits gives up earlier, for all messages of a call
            // at one moment: were each to expire by itself, the next of its key could be sent in its stead.
            .set("message.timeout.ms", milliseconds(self.ack_timeout * 2))
            .set(
                "socket.connection.setup.timeout.ms",
                milliseconds(self.connect_timeout.max(Duration::from_secs(1))),
            );
        if let Compression::Lz4 | Compression::Snappy = self.compression {
            let name = if self.compression == Compression::Lz4 { "lz4" } else { "snappy" };
            config.set("compression.type", name);
        }
        // Mechanisms that have no method here are named by a property.
        let is_sasl =
            self.sasl.is_some() || self.properties.keys().any(|name| name.starts_with("sasl.mechanism"));
        let protocol = match (self.is_tls, is_sasl) {
            (false, false) => "plaintext",
            (false, true) => "sasl_plaintext",
            (true, false) => "ssl",
            (true, true) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some((mechanism, user, password)) = &self.sasl {
            config.set(
                "sasl.mechanism",
                match mechanism {
                    SaslMechanism::Plain => "PLAIN",
                    SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
                    SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
                },
            );
            config.set("sasl.username", user).set("sasl.password", password);
        }
        let text = |file: &PathBuf| file.to_string_lossy().into_owned();
        if let Some(file) = &self.root_certificates {
            config.set("ssl.ca.location", text(file));
        }
        if let Some((certificate, key)) = &self.client_certificate {
            config.set("ssl.certificate.location", text(certificate)).set("ssl.key.location", text(key));
        }
        config
    }
}

/// The servers without their scheme, and whether they speak TLS.
fn servers(url: &str) -> Result<(String, bool), Invalid> {
    let wrong = |rule: &'static str| Err(Invalid::rule("url", rule));
    let (mut servers, mut is_tls) = (Vec::new(), None);
    for part in url.split(',') {
        let part = part.trim();
        let (scheme, server) =
            part.split_once("://").map_or((None, part), |(scheme, server)| (Some(scheme), server));
        let asks = match scheme {
            Some("kafka") => Some(false),
            Some("kafka+ssl") => Some(true),
            None => None,
            Some(_) => return wrong("write kafka://host:9092, or kafka+ssl://host:9093 with TLS"),
        };
        if asks.is_some() && is_tls.is_some() && asks != is_tls {
            return wrong("names servers with TLS and servers without it; a cluster has one or the other");
        }
        is_tls = is_tls.or(asks);
        if server.contains('@') {
            return wrong("has a user; give user and password to `with_sasl`");
        }
        let server = server.trim_end_matches('/');
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        if !server
            .rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && !host.contains('/') && is_port(port))
        {
            return wrong("names no host and port: write kafka://host:9092, several with commas in between");
        }
        servers.push(server);
    }
    Ok((servers.join(","), is_tls.unwrap_or(false)))
}

fn check_property(name: &str, value: &str) -> Result<(), Invalid> {
    let refused = |why: &str| Err(Invalid::rule("properties", format!("{name}: {why}")));
    if let Some((_, fixed)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
        let is_same = value == *fixed || (name == "acks" && value == "-1");
        return if is_same {
            Ok(())
        } else {
            refused(&format!("is always {fixed}: messages would be lost otherwise"))
        };
    }
    if let Some((_, instead)) = OURS.iter().find(|(ours, _)| *ours == name) {
        return refused(instead);
    }
    if name == "partitioner"
        && value.ends_with("random")
        && !["murmur2_random", "consistent_random", "fnv1a_random"].contains(&value)
    {
        return refused("the messages of a key would go anywhere, in any order");
    }
    Ok(())
}

/// In the words of the client, but for what must not be shown.
fn wrong_setting(error: &KafkaError) -> Invalid {
    let rule = match error {
        KafkaError::ClientConfig(_, described, name, _) => {
            let is_secret = ["password", "secret", "key", "token"].iter().any(|word| name.contains(word));
            format!("{name}: {}", if is_secret { "has a value that is not allowed" } else { described })
        }
        KafkaError::ClientCreation(why) => why.clone(),
        KafkaError::Nul(_) => "one of them has a character NUL".to_owned(),
        error => answer::said(error),
    };
    Invalid::rule("properties", rule)
}

impl fmt::Debug for KafkaOptions {
    /// Shows no user and no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaOptions")
            .field("servers", &self.servers)
            .field("is_tls", &self.is_tls)
            .field("sasl", &self.sasl.as_ref().map(|(mechanism, ..)| mechanism))
            .finish_non_exhaustive()
    }
}
