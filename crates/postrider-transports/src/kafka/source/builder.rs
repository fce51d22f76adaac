//! What a source of Kafka needs.

use super::KafkaSource;
use crate::kafka::{
    cluster::{ClusterOptions, Named, SaslMechanism, wrong_setting},
    wire::{check_name, check_topic},
};
use postrider_core::Invalid;
use rdkafka::{ClientConfig, consumer::BaseConsumer};
use std::{fmt, path::PathBuf, time::Duration};

const PREFETCH: usize = 1_000;
const SESSION_TIMEOUT: Duration = Duration::from_secs(45);

/// What is better than what the client does by itself.
const USUAL: Named = &[
    // Who comes and goes stops those only whose partitions move.
    ("partition.assignment.strategy", "cooperative-sticky"),
    // How long a commit waits for its answer where the network is silent.
    ("socket.timeout.ms", "10000"),
    // What the client holds besides what was handed over.
    ("queued.min.messages", "1000"),
    ("queued.max.messages.kbytes", "16384"),
];

/// What is always so: without it messages could be lost.
const FIXED: Named = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // A group that is new, or whose place is gone, begins with the oldest message that is there.
    ("auto.offset.reset", "earliest"),
    ("isolation.level", "read_committed"),
    ("allow.auto.create.topics", "false"),
    ("enable.partition.eof", "false"),
];

/// Other names of the same settings, or of settings that this builder has a method for.
const OURS: Named = &[
    ("auto.commit.enable", "offsets are committed when messages are done"),
    ("bootstrap.servers", "name the servers in `builder`"),
    ("metadata.broker.list", "name the servers in `builder`"),
    ("group.id", "use `with_group`"),
    ("group.instance.id", "use `with_instance`"),
    ("session.timeout.ms", "use `with_session_timeout`"),
    ("heartbeat.interval.ms", "use `with_session_timeout`"),
    ("security.protocol", "begin the servers with kafka:// or kafka+ssl://, and use `with_sasl`"),
    ("sasl.username", "use `with_sasl`"),
    ("sasl.password", "use `with_sasl`"),
    ("ssl.ca.location", "use `with_root_certificates`"),
    ("test.mock.num.brokers", "it would receive from nobody"),
];

/// Collects what a source of Kafka needs; [`build`](Self::build) checks it all.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct KafkaSourceBuilder {
    group: Group,
}

/// The group that a source is of, and how it reads.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) cluster: ClusterOptions,
    pub(super) topic: String,
    pub(super) name: String,
    pub(super) instance: Option<String>,
    pub(super) prefetch: usize,
    session_timeout: Duration,
}

impl KafkaSourceBuilder {
    pub(super) fn new(servers: String, topic: String) -> Self {
        Self {
            group: Group {
                cluster: ClusterOptions::new(servers),
                topic,
                name: "postrider".to_owned(),
                instance: None,
                prefetch: PREFETCH,
                session_timeout: SESSION_TIMEOUT,
            },
        }
    }

    /// Reads as one of this group; `postrider` unless said otherwise. Each group gets everything, and its consumers share the partitions.
    pub fn with_group(mut self, name: impl Into<String>) -> Self {
        self.group.name = name.into();
        self
    }

    /// Is this member of the group, whenever the process is started again (`group.instance.id`); a new one each time unless said otherwise. Give
    /// each process a name of its own that lasts, such as that of its pod in a stateful set.
    ///
    /// A process that comes back within [`with_session_timeout`](Self::with_session_timeout) has its partitions at once, however it ended, and
    /// nobody else is disturbed. The price: it never leaves, not even when it is closed, so others get its partitions only after that time. Two
    /// processes with one name take the partitions from each other; each is told when it loses them.
    pub fn with_instance(mut self, name: impl Into<String>) -> Self {
        self.group.instance = Some(name.into());
        self
    }

    /// Holds so many messages of each partition; 1,000 unless said otherwise. It counts what waits to be received, what is in hand, and what is
    /// done behind one that is not. A partition that has so many is paused until half of them are done.
    pub fn with_prefetch(mut self, messages: usize) -> Self {
        self.group.prefetch = messages;
        self
    }

    /// The group takes a process for dead that it has not heard of for so long, and gives its partitions to others; 45 seconds unless said
    /// otherwise. Brokers allow from 6 seconds to 30 minutes unless told otherwise.
    pub fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.group.session_timeout = timeout;
        self
    }

    /// Says who it is with user and password.
    pub fn with_sasl(
        mut self,
        mechanism: SaslMechanism,
        user: impl Into<String>,
        password: impl Into<String>,
    ) -> Self {
        self.group.cluster.sasl = Some((mechanism, user.into(), password.into()));
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of those of the system.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.group.cluster.root_certificates = Some(file.into());
        self
    }

    /// Shows this certificate; both files have the format PEM.
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.group.cluster.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Waits so long for a server to answer at all; 5 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, timeout: Duration) -> Self {
        self.group.cluster.connect_timeout = timeout;
        self
    }

    /// Sets a property of librdkafka that has no method here. Those that the promise rests on can be named, and not weakened.
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.group.cluster.properties.insert(name.into(), value.into());
        self
    }

    /// Checks everything and makes the source. It connects when it is asked for messages.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows a password.
    pub fn build(mut self) -> Result<KafkaSource, Invalid> {
        let group = &mut self.group;
        group.cluster.settle(FIXED, OURS)?;
        check_topic(&group.topic).map_err(|why| Invalid::rule("topic", why))?;
        if group.name.is_empty() {
            return Err(Invalid::rule("group", "is empty; give it a name"));
        }
        if let Some(instance) = &group.instance {
            check_name(instance, "an instance").map_err(|why| Invalid::rule("instance", why))?;
        }
        if !(1..=1_000_000).contains(&group.prefetch) {
            return Err(Invalid::rule("prefetch", "give at least 1, and at most 1,000,000"));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(60 * 60)).contains(&group.session_timeout) {
            return Err(Invalid::rule("session_timeout", "give at least a second, and at most an hour"));
        }
        // One that knows no server, and so connects to none: settings that contradict each other are found here.
        let mut trial = group.config();
        trial.remove("bootstrap.servers");
        trial.remove("group.id");
        trial.create::<BaseConsumer>().map_err(|error| wrong_setting(&error))?;
        Ok(KafkaSource::with(self.group))
    }
}

impl Group {
    /// What the client is told.
    pub(super) fn config(&self) -> ClientConfig {
        let mut config = self.cluster.config(USUAL, FIXED);
        config
            .set("group.id", &self.name)
            .set("session.timeout.ms", self.session_timeout.as_millis().to_string())
            .set("heartbeat.interval.ms", (self.session_timeout.as_millis() / 10).max(1).to_string());
        if let Some(instance) = &self.instance {
            config.set("group.instance.id", instance);
        }
        config
    }

    /// What somebody is told who only asks.
    pub(super) fn asking(&self) -> ClientConfig {
        self.cluster.config(&[], &[("allow.auto.create.topics", "false")])
    }
}

impl fmt::Debug for KafkaSourceBuilder {
    /// Shows no user and no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSourceBuilder").field("group", &self.group).finish()
    }
}
