//! Builder of a Redis source.

use super::{
    RedisSource,
    group::{ConsumerGroup, GENERATED_PREFIX, NACKED_CONSUMER, Start},
    receive::BLOCK,
};
use crate::{
    byte_budget::{ByteBudget, MAX_BYTES_IN_FLIGHT},
    redis::server::Server,
};
use postrider_core::{ClientOptions, Invalid, MessageId};
use std::{
    fmt,
    sync::Mutex,
    time::{Duration, SystemTime},
};

const ACK_DEADLINE: Duration = Duration::from_secs(60);
const MIN_ACK_DEADLINE: Duration = Duration::from_secs(1);
const MAX_ACK_DEADLINE: Duration = Duration::from_secs(24 * 60 * 60);

/// Builder of a [`RedisSource`]; [`build`](Self::build) checks the settings.
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RedisSourceBuilder {
    client: ClientOptions,
    stream: String,
    group: String,
    consumer: Option<String>,
    created_at: Option<Start>,
    ack_deadline: Duration,
    reject_to: Option<String>,
    delete_when_done: bool,
    max_bytes: usize,
}

impl RedisSourceBuilder {
    pub(super) fn new(client: ClientOptions, stream: String) -> Self {
        Self {
            client,
            stream,
            group: "postrider".to_owned(),
            consumer: None,
            created_at: None,
            ack_deadline: ACK_DEADLINE,
            reject_to: None,
            delete_when_done: false,
            max_bytes: MAX_BYTES_IN_FLIGHT,
        }
    }

    /// Consumer group. Default: `postrider`. Each group receives every entry, and its consumers share them.
    pub fn with_group(mut self, name: impl Into<String>) -> Self {
        self.group = name.into();
        self
    }

    /// Creates the group if it does not exist, and the stream with it. The group starts with the first entry of the stream and misses nothing.
    pub fn create_group(mut self) -> Self {
        self.created_at = Some(Start::Beginning);
        self
    }

    /// Creates the group if it does not exist, and the stream with it. The group starts with entries added afterwards: it **never reads**
    /// existing ones.
    pub fn create_group_at_end(mut self) -> Self {
        self.created_at = Some(Start::End);
        self
    }

    /// Consumer name. No other process may use it at the same time. Entries that were in flight under it when a process died are redelivered
    /// at once to the next process. Default: a unique generated name, and such entries are redelivered after the ack deadline.
    pub fn with_consumer(mut self, name: impl Into<String>) -> Self {
        self.consumer = Some(name.into());
        self
    }

    /// Ack deadline: an entry that is neither acked nor extended within this time is redelivered, here or to another consumer. Default: 60
    /// seconds. It is also the maximum delay of a nack. Use the same value for all consumers of a group.
    pub fn with_ack_deadline(mut self, deadline: Duration) -> Self {
        self.ack_deadline = deadline;
        self
    }

    /// Copies rejected entries to this stream, atomically with their acknowledgement. Default: a rejected entry is only acknowledged, and stays
    /// in its own stream.
    pub fn with_reject_to(mut self, stream: impl Into<String>) -> Self {
        self.reject_to = Some(stream.into());
        self
    }

    /// Deletes acked and rejected entries from the stream; otherwise it grows until it is trimmed. Use it only if the stream has no other group:
    /// other groups would miss entries that they have not read yet.
    pub fn with_delete_when_done(mut self) -> Self {
        self.delete_when_done = true;
        self
    }

    /// Bytes in flight: the source holds messages of about this many bytes that are not acked yet, and one batch more. Default: 64 MiB.
    /// A message that is larger is received alone.
    pub fn with_max_bytes_in_flight(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// Checks the settings and creates the source. It connects with the first receive.
    ///
    /// # Errors
    /// Names the first invalid setting and the allowed values. The error never contains the URL, which may hold a password.
    pub fn build(self) -> Result<RedisSource, Invalid> {
        let named = [
            ("stream", Some(&self.stream)),
            ("group", Some(&self.group)),
            ("consumer", self.consumer.as_ref()),
            ("reject_to", self.reject_to.as_ref()),
        ];
        for (setting, name) in named {
            if name.is_some_and(String::is_empty) {
                return Err(Invalid::rule(setting, "is empty; give a name"));
            }
        }
        if self.consumer.as_deref() == Some(NACKED_CONSUMER) {
            return Err(Invalid::rule("consumer", "is reserved for nacked entries; choose another name"));
        }
        if self.reject_to.as_ref() == Some(&self.stream) {
            return Err(Invalid::rule(
                "reject_to",
                "is the source stream itself, so that rejected entries would be delivered again; choose another stream",
            ));
        }
        ByteBudget::check(self.max_bytes)?;
        if !(MIN_ACK_DEADLINE..=MAX_ACK_DEADLINE).contains(&self.ack_deadline) {
            return Err(Invalid::rule("ack_deadline", "must be between a second and a day"));
        }
        let server = Server::new(&self.client, BLOCK)?;
        let is_named = self.consumer.is_some();
        let generated = || format!("{GENERATED_PREFIX}{}", MessageId::at(SystemTime::now()));
        let consumer = self.consumer.unwrap_or_else(generated).into();
        let group = ConsumerGroup {
            stream: self.stream,
            name: self.group,
            consumer,
            is_named,
            created_at: self.created_at,
            ack_deadline: self.ack_deadline,
            reject_to: self.reject_to,
            delete_when_done: self.delete_when_done,
            due: Mutex::default(),
        };
        Ok(RedisSource::with(server, group, self.max_bytes))
    }
}

impl fmt::Debug for RedisSourceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSourceBuilder")
            .field("client", &self.client)
            .field("stream", &self.stream)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
