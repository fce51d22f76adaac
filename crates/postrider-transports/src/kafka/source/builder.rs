//! The settings of a Kafka source.

use super::KafkaSource;
use crate::{
    byte_budget::{ByteBudget, MAX_BYTES_IN_FLIGHT},
    kafka::{
        cluster::{ClusterOptions, Properties, SaslMechanism, wrong_setting},
        wire::{check_name, check_topic},
    },
};
use postrider_core::{ClientOptions, Invalid};
use rdkafka::{ClientConfig, consumer::BaseConsumer};
use std::{fmt, time::Duration};

const PREFETCH: usize = 1_000;
const SESSION_TIMEOUT: Duration = Duration::from_secs(45);

/// Defaults that differ from those of the client; properties override them.
const DEFAULTS: Properties = &[
    // A consumer that joins or leaves stops only those whose partitions move.
    ("partition.assignment.strategy", "cooperative-sticky"),
    // How long a commit waits for its response if the network drops packets.
    ("socket.timeout.ms", "10000"),
    // The client's own buffer, in addition to the prefetched messages.
    ("queued.min.messages", "1000"),
    // After the buffer was full, the client waits before it fetches again; its default is a second.
    ("fetch.queue.backoff.ms", "100"),
];

/// Properties that cannot be changed: without them messages could be lost.
const FIXED: Properties = &[
    ("enable.auto.commit", "false"),
    ("enable.auto.offset.store", "false"),
    // A group that is new, or whose offsets expired, begins with the oldest message.
    ("auto.offset.reset", "earliest"),
    ("isolation.level", "read_committed"),
    ("allow.auto.create.topics", "false"),
    ("enable.partition.eof", "false"),
];

/// Other names of the same properties, and properties that this builder has a method for.
const RESERVED: Properties = &[
    ("auto.commit.enable", "offsets are committed when messages are acked"),
    ("bootstrap.servers", "name the servers in `builder`"),
    ("metadata.broker.list", "name the servers in `builder`"),
    ("group.id", "use `with_group`"),
    ("group.instance.id", "use `with_instance`"),
    ("session.timeout.ms", "use `with_session_timeout`"),
    ("heartbeat.interval.ms", "use `with_session_timeout`"),
    ("security.protocol", "choose kafka:// or kafka+ssl:// in the servers, and use `with_sasl`"),
    ("sasl.username", "use `ClientOptions::with_password`"),
    ("sasl.password", "use `ClientOptions::with_password`"),
    ("ssl.ca.location", "use `ClientOptions::with_trust`"),
    ("ssl.ca.pem", "use `ClientOptions::with_trust`"),
    ("test.mock.num.brokers", "not supported: messages would come from a mock cluster"),
];

/// The settings of a [`KafkaSource`]; [`build`](Self::build) validates them.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct KafkaSourceBuilder {
    group: ConsumerGroup,
}

/// The consumer group of a source, and how the source reads.
#[derive(Debug, Clone)]
pub(super) struct ConsumerGroup {
    pub(super) cluster: ClusterOptions,
    pub(super) topic: String,
    pub(super) name: String,
    pub(super) instance: Option<String>,
    pub(super) prefetch: usize,
    pub(super) max_bytes: usize,
    session_timeout: Duration,
}

impl KafkaSourceBuilder {
    pub(super) fn new(client: ClientOptions, topic: String) -> Self {
        Self {
            group: ConsumerGroup {
                cluster: ClusterOptions::new(client),
                topic,
                name: "postrider".to_owned(),
                instance: None,
                prefetch: PREFETCH,
                max_bytes: MAX_BYTES_IN_FLIGHT,
                session_timeout: SESSION_TIMEOUT,
            },
        }
    }

    /// Consumer group (`group.id`). Default: `postrider`. Each group receives all messages, and its consumers share the partitions.
    pub fn with_group(mut self, name: impl Into<String>) -> Self {
        self.group.name = name.into();
        self
    }

    /// Static membership (`group.instance.id`): the process is the same member of the group after each restart. Default: a new member each
    /// time. Give each process a stable name of its own, such as that of its pod in a stateful set.
    ///
    /// A process that restarts within [`with_session_timeout`](Self::with_session_timeout) has its partitions at once, however it ended, and
    /// the group does not rebalance. The price: a static member never leaves the group, not even when it is closed, so other members get its
    /// partitions only after that time. Two processes with one name take the partitions from each other; each receives an error when it
    /// loses them.
    pub fn with_instance(mut self, name: impl Into<String>) -> Self {
        self.group.instance = Some(name.into());
        self
    }

    /// Prefetch: the most messages held for each partition. Default: 1,000. It counts messages that wait to be received, messages in flight, and
    /// acked messages behind one that is not acked. A full partition is paused until half of its messages are done.
    pub fn with_prefetch(mut self, messages: usize) -> Self {
        self.group.prefetch = messages;
        self
    }

    /// Bytes in flight: the source holds messages of about this many bytes that are not acked yet, and one batch more. Default: 64 MiB.
    /// A message that is larger is received alone.
    pub fn with_max_bytes_in_flight(mut self, bytes: usize) -> Self {
        self.group.max_bytes = bytes;
        self
    }

    /// Session timeout: the group considers a process dead that sent no heartbeat for this time, and assigns its partitions to others.
    /// Default: 45 seconds. Brokers allow 6 seconds to 30 minutes by default.
    pub fn with_session_timeout(mut self, timeout: Duration) -> Self {
        self.group.session_timeout = timeout;
        self
    }

    /// Authenticates with SASL, by this mechanism and the user and password of the client.
    pub fn with_sasl(mut self, mechanism: SaslMechanism) -> Self {
        self.group.cluster.sasl = Some(mechanism);
        self
    }

    /// Sets a property of librdkafka that has no method here. Properties on which the delivery guarantees rest cannot be weakened.
    pub fn with_property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.group.cluster.properties.insert(name.into(), value.into());
        self
    }

    /// Validates the settings and creates the source, which connects with the first call that receives.
    ///
    /// # Errors
    /// Names the first invalid setting and its fix. The error never contains a password.
    pub fn build(mut self) -> Result<KafkaSource, Invalid> {
        let group = &mut self.group;
        group.cluster.validate(FIXED, RESERVED)?;
        check_topic(&group.topic).map_err(|why| Invalid::rule("topic", why))?;
        if group.name.is_empty() {
            return Err(Invalid::rule("group", "is empty; set the name of a consumer group"));
        }
        if let Some(instance) = &group.instance {
            check_name(instance, "a valid instance name").map_err(|why| Invalid::rule("instance", why))?;
        }
        if !(1..=1_000_000).contains(&group.prefetch) {
            return Err(Invalid::rule("prefetch", "must be from 1 to 1,000,000"));
        }
        ByteBudget::check(group.max_bytes)?;
        if !(Duration::from_secs(1)..=Duration::from_secs(60 * 60)).contains(&group.session_timeout) {
            return Err(Invalid::rule("session_timeout", "must be from 1 second to 1 hour"));
        }
        // A client without servers connects to none: it finds contradicting settings now.
        let mut trial = group.config()?;
        trial.remove("bootstrap.servers");
        trial.remove("group.id");
        trial.create::<BaseConsumer>().map_err(|error| wrong_setting(&error))?;
        Ok(KafkaSource::with(self.group))
    }
}

impl ConsumerGroup {
    /// The configuration of the consumer client.
    pub(super) fn config(&self) -> Result<ClientConfig, Invalid> {
        let mut config = self.cluster.config(DEFAULTS, FIXED)?;
        if config.get("queued.max.messages.kbytes").is_none() {
            let kbytes = (self.max_bytes / 4 / 1024).clamp(1, 16_384);
            config.set("queued.max.messages.kbytes", kbytes.to_string());
        }
        config
            .set("group.id", &self.name)
            .set("session.timeout.ms", self.session_timeout.as_millis().to_string())
            .set("heartbeat.interval.ms", (self.session_timeout.as_millis() / 10).max(1).to_string());
        if let Some(instance) = &self.instance {
            config.set("group.instance.id", instance);
        }
        Ok(config)
    }

    /// The configuration of a client that only queries the cluster and does not join the group.
    pub(super) fn admin_config(&self) -> Result<ClientConfig, Invalid> {
        self.cluster.config(&[], &[("allow.auto.create.topics", "false")])
    }
}

impl fmt::Debug for KafkaSourceBuilder {
    /// Omits user and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSourceBuilder").field("group", &self.group).finish()
    }
}
