//! The seam to where messages come from: brokers and webhooks, as their consumers see them.

use crate::{Finding, Incoming};
use async_trait::async_trait;
use std::{
    any::Any,
    error::Error as StdError,
    fmt,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    sync::Arc,
    time::Duration,
};

/// Receives messages, and tells the other side what became of them.
///
/// **The one promise.** A message that was received comes again, here or elsewhere, until it was answered with [`Answer::Done`] or
/// [`Answer::Refuse`]: a process that dies, a connection that breaks and an answer that is lost never make it disappear. An
/// implementation never answers by itself.
///
/// What is received is what the wire brought, with the binding undone ([`Incoming`]). Reading it, and refusing what cannot be read, is
/// not a source's affair.
#[async_trait]
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// What it speaks, in a word, for logs and metrics.
    fn kind(&self) -> &'static str;

    /// What it reads: a queue, a subject, a topic, a stream, a path.
    fn origin(&self) -> &str;

    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// Waits until there is something, and gives up to `most` messages of it without waiting for more. Connects by itself, again
    /// after an error, too. Only one call is under way at a time.
    ///
    /// The future may be dropped at any await. What it would have given comes with a later call, or again by itself.
    ///
    /// # Errors
    /// When nothing comes through. What was received over a connection that is gone comes again, and cannot be answered any more.
    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError>;

    /// Says what became of messages, and tells for each, in the order of the batch, whether the other side could be told. Calls may
    /// overlap with each other and with [`receive`](Self::receive).
    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>>;

    /// Keeps messages in hand for another [`Abilities::holds_for`], and tells for each whether it could be. Where nothing has to be
    /// extended it does nothing.
    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>>;

    /// For how long a message that nobody has answered can come again.
    ///
    /// # Errors
    /// When it cannot be asked.
    async fn redelivers(&self) -> Result<Redelivers, SourceError>;

    /// Whether it can keep the promise: what would lose messages before they were handled, and how to mend it. Finding nothing is the
    /// good answer.
    ///
    /// # Errors
    /// When it cannot be asked.
    async fn check(&self) -> Result<Vec<Finding>, SourceError>;

    /// Closes. What was not answered goes back to the other side at once, where that is possible. Closing again does nothing;
    /// receiving afterwards, and a call that waits, is refused as down.
    async fn close(&self);
}

/// What a source can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Abilities {
    /// It tells how often a message was delivered.
    pub counts: bool,
    /// The longest delay that it keeps for [`Answer::Again`]. Without one, a message comes again at once, and whoever wants it later
    /// keeps it in hand.
    pub delays: Option<Duration>,
    /// A message comes again when it was in hand for so long without having been [extended](Source::extend).
    pub holds_for: Option<Duration>,
    /// The most answers in one call that are worth collecting: one of them costs a round trip anyway.
    pub answers: usize,
}

impl Abilities {
    /// Up to so many answers are told together.
    pub const fn answering(answers: usize) -> Self {
        Self { counts: false, delays: None, holds_for: None, answers }
    }

    /// It counts deliveries.
    #[must_use]
    pub const fn counting(mut self) -> Self {
        self.counts = true;
        self
    }

    /// It keeps delays of up to this.
    #[must_use]
    pub const fn delaying(mut self, longest: Duration) -> Self {
        self.delays = Some(longest);
        self
    }

    /// Messages have to be extended before this is over.
    #[must_use]
    pub const fn holding_for(mut self, holds_for: Duration) -> Self {
        self.holds_for = Some(holds_for);
        self
    }
}

/// A message as it was received.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Parcel {
    /// What the wire brought.
    pub incoming: Incoming,
    /// With what it is answered.
    pub ticket: Ticket,
    /// How often it was delivered, this time included, where the other side knows.
    pub deliveries: Option<u32>,
    /// What it must not overtake, where the other side keeps an order: the next message of a lane is not begun before the one in front
    /// of it was answered. After [`Answer::Again`] for one, all that were received behind it in its lane are answered in the same way.
    /// They come again in their order: what a source gives after it was told, it gives behind the one that comes again.
    pub lane: Option<Lane>,
}

impl Parcel {
    /// A message, to be answered with `ticket`.
    pub fn new(incoming: Incoming, ticket: Ticket) -> Self {
        Self { incoming, ticket, deliveries: None, lane: None }
    }

    /// It was delivered so often, this time included.
    #[must_use]
    pub fn delivered(mut self, times: u32) -> Self {
        self.deliveries = Some(times);
        self
    }

    /// It keeps to its lane.
    #[must_use]
    pub fn in_lane(mut self, lane: Lane) -> Self {
        self.lane = Some(lane);
        self
    }
}

/// Messages of one lane are handled one after the other. Two keys may share a lane by chance, which costs nothing but time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lane(u64);

impl Lane {
    /// The lane of a key.
    pub fn of<K: Hash + ?Sized>(key: &K) -> Self {
        Self(BuildHasherDefault::<DefaultHasher>::default().hash_one(key))
    }

    /// A number for it.
    pub const fn number(self) -> u64 {
        self.0
    }
}

/// With what a message is answered. Only its source knows what is in it.
#[derive(Clone)]
pub struct Ticket(Arc<dyn Any + Send + Sync>);

impl Ticket {
    /// For a source's own use.
    pub fn new<T: Any + Send + Sync>(inside: T) -> Self {
        Self(Arc::new(inside))
    }

    /// What its source put into it; nothing when another source did.
    pub fn inside<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It is done with, and never comes again.
    Done,
    /// It is to come again, after so long where the source [delays](Abilities::delays).
    Again {
        /// When.
        after: Duration,
    },
    /// It will never be handled: it goes where the other side puts such messages, or is dropped there.
    Refuse,
}

impl Answer {
    /// It is to come again at once.
    pub const AT_ONCE: Self = Self::Again { after: Duration::ZERO };
}

/// For how long a message that nobody has answered can come again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redelivers {
    /// At the longest; for ever if there is no limit.
    pub within: Option<Duration>,
    /// What says so: a setting and its value.
    pub because: String,
}

impl Redelivers {
    /// At the longest so long after it was sent.
    pub fn within(longest: Duration, because: impl Into<String>) -> Self {
        Self { within: Some(longest), because: because.into() }
    }

    /// For ever.
    pub fn for_ever(because: impl Into<String>) -> Self {
        Self { within: None, because: because.into() }
    }
}

/// Why nothing was received, or nothing could be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Nothing comes through: no connection, no such queue, no permission. Try again after a while.
    #[error("nothing comes through: {source}")]
    Down {
        /// What happened.
        source: Cause,
    },
    /// The message is not ours any more, or cannot be told to be: it comes again.
    #[error("it was not in our hands any more: {source}")]
    Stale {
        /// What happened.
        source: Cause,
    },
}

/// What is behind an error.
type Cause = Box<dyn StdError + Send + Sync>;

impl SourceError {
    /// Nothing comes through.
    pub fn down(source: impl Into<Cause>) -> Self {
        Self::Down { source: source.into() }
    }

    /// The message is not ours any more.
    pub fn stale(source: impl Into<Cause>) -> Self {
        Self::Stale { source: source.into() }
    }
}
