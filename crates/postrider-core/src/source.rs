//! The interface to brokers and webhooks from which a consumer receives.

use crate::{BoxError, Finding, Incoming};
use async_trait::async_trait;
use std::{
    any::Any,
    fmt,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    sync::Arc,
    time::Duration,
};

/// Receives messages from a broker, and acks, nacks or rejects them.
///
/// **The one promise.** The broker redelivers a received message, here or to another consumer, until it is acked ([`Ack::Ack`]) or
/// rejected ([`Ack::Reject`]): a process that dies, a connection that breaks or an ack that is lost never makes it disappear. An
/// implementation never acks on its own.
///
/// A source returns the message as it came over the wire, with the protocol binding undone ([`Incoming`]). Decoding the message, and
/// dead-lettering an undecodable one, is the consumer's task.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// The protocol in one word, for logs and metrics.
    fn kind(&self) -> &'static str;

    /// The queue, subject, topic, stream or path it reads.
    fn origin(&self) -> &str;

    /// The capabilities of the broker behind it.
    fn capabilities(&self) -> Capabilities;

    /// Waits until at least one message is available, and returns up to `most` without waiting for more. Connects on demand, and
    /// reconnects after an error. The caller makes one call at a time.
    ///
    /// The future may be dropped at any await: a later call returns the messages, or the broker redelivers them.
    ///
    /// # Errors
    /// When the broker is unavailable. Messages that were received over a lost connection are redelivered and can no longer be acked.
    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError>;

    /// Acks, nacks or rejects messages, and returns for each, in the order of the batch, whether the broker took it. Calls may overlap
    /// with each other and with [`receive`](Self::receive).
    async fn ack(&self, answers: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>>;

    /// Extends the ack deadline (visibility timeout) of messages by another [`Capabilities::ack_deadline`], and returns for each
    /// whether that succeeded. Does nothing for brokers without an ack deadline.
    async fn extend(&self, tickets: &[AckHandle]) -> Vec<Result<(), SourceError>>;

    /// Returns for how long the broker can redeliver an unacked message.
    ///
    /// # Errors
    /// When the broker cannot be asked.
    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError>;

    /// Checks the broker for settings that could lose messages before they are handled. Each finding has its fix; an empty list means
    /// that all is well.
    ///
    /// # Errors
    /// When the broker cannot be asked.
    async fn check(&self) -> Result<Vec<Finding>, SourceError>;

    /// Closes. Unacked messages return to the broker at once where the protocol allows it. Closing again does nothing; a pending or later
    /// `receive` fails as unavailable.
    async fn close(&self);
}

/// The capabilities of a source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Whether the broker counts deliveries of a message.
    pub counts_deliveries: bool,
    /// The longest delay that the broker honours for [`Ack::Nack`]. Without one a nacked message is redelivered at once, and a consumer
    /// that wants a delay keeps the message in flight meanwhile.
    pub max_delay: Option<Duration>,
    /// Ack deadline (visibility timeout): the broker redelivers a message that is neither acked nor [extended](Source::extend) within it.
    pub ack_deadline: Option<Duration>,
    /// The largest batch of acks worth collecting for one call of [`Source::ack`].
    pub ack_batch: usize,
}

impl Capabilities {
    /// A source that acks in batches of up to `ack_batch`.
    pub const fn new(ack_batch: usize) -> Self {
        Self { counts_deliveries: false, max_delay: None, ack_deadline: None, ack_batch }
    }

    /// The broker counts deliveries.
    #[must_use]
    pub const fn with_delivery_counts(mut self) -> Self {
        self.counts_deliveries = true;
        self
    }

    /// The broker delays a nacked message by up to `longest`.
    #[must_use]
    pub const fn with_max_delay(mut self, longest: Duration) -> Self {
        self.max_delay = Some(longest);
        self
    }

    /// The broker redelivers messages that are neither acked nor extended within `ack_deadline`.
    #[must_use]
    pub const fn with_ack_deadline(mut self, ack_deadline: Duration) -> Self {
        self.ack_deadline = Some(ack_deadline);
        self
    }
}

/// A message as received from a broker.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReceivedMessage {
    /// The message as it came over the wire.
    pub incoming: Incoming,
    /// The handle with which the message is acked.
    pub ack_handle: AckHandle,
    /// The number of deliveries including this one, where the broker counts them.
    pub deliveries: Option<u32>,
    /// The ordering lane, where the broker keeps an order: the consumer starts a message of a lane only after the previous one is acked.
    /// When one is nacked, the consumer nacks all messages received behind it in the lane. The broker redelivers them in order, and
    /// messages that the source returns later come behind the redelivered ones.
    pub lane: Option<LaneId>,
}

impl ReceivedMessage {
    /// A message that is acked with `ack_handle`.
    pub fn new(incoming: Incoming, ack_handle: AckHandle) -> Self {
        Self { incoming, ack_handle, deliveries: None, lane: None }
    }

    /// Sets the number of deliveries, including this one.
    #[must_use]
    pub fn delivered(mut self, times: u32) -> Self {
        self.deliveries = Some(times);
        self
    }

    /// Sets the ordering lane.
    #[must_use]
    pub fn in_lane(mut self, lane: LaneId) -> Self {
        self.lane = Some(lane);
        self
    }
}

/// An ordering lane: its messages are handled one after the other. Two keys may share a lane by hash collision, which costs only
/// concurrency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LaneId(u64);

impl LaneId {
    /// The lane of a key.
    pub fn of<K: Hash + ?Sized>(key: &K) -> Self {
        Self(BuildHasherDefault::<DefaultHasher>::default().hash_one(key))
    }

    /// The lane's number.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// An opaque handle with which a message is acked, made by its source.
#[derive(Clone)]
pub struct AckHandle(Arc<dyn Any + Send + Sync>);

impl AckHandle {
    /// Wraps a source's own data.
    pub fn new<T: Any + Send + Sync>(inside: T) -> Self {
        Self(Arc::new(inside))
    }

    /// The source's own data; `None` for a handle of another source.
    pub fn downcast<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for AckHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AckHandle")
    }
}

/// The result of handling a message, as the broker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ack {
    /// The message is handled: the broker forgets it.
    Ack,
    /// The broker redelivers the message, after a delay where it [honours one](Capabilities::max_delay).
    Nack {
        /// The delay.
        after: Duration,
    },
    /// The message is never handled: the broker dead-letters or drops it, as it is configured.
    Reject,
}

impl Ack {
    /// Nack without delay.
    pub const REDELIVER_NOW: Self = Self::Nack { after: Duration::ZERO };
}

/// The time during which a broker can redeliver an unacked message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedeliveryWindow {
    /// The length of the window; `None` if it is unbounded.
    pub within: Option<Duration>,
    /// The broker setting that determines the window, with its value.
    pub reason: String,
}

impl RedeliveryWindow {
    /// Redelivery ends `longest` after the message was sent.
    pub fn within(longest: Duration, reason: impl Into<String>) -> Self {
        Self { within: Some(longest), reason: reason.into() }
    }

    /// Redelivery never ends.
    pub fn unbounded(reason: impl Into<String>) -> Self {
        Self { within: None, reason: reason.into() }
    }
}

/// An error of receiving or acking.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The broker is unavailable: no connection, no such queue, no permission. Retry after a backoff.
    #[error("source unavailable: {source}")]
    Unavailable {
        /// The cause.
        source: BoxError,
    },
    /// The message is no longer in flight here, or the ack could not be sent: the broker redelivers it.
    #[error("message no longer in flight here: {source}")]
    Stale {
        /// The cause.
        source: BoxError,
    },
}

impl SourceError {
    /// The broker is unavailable.
    pub fn unavailable(source: impl Into<BoxError>) -> Self {
        Self::Unavailable { source: source.into() }
    }

    /// The message is no longer in flight here.
    pub fn stale(source: impl Into<BoxError>) -> Self {
        Self::Stale { source: source.into() }
    }
}
