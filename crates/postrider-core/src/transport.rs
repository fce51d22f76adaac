//! The seam to where messages go: brokers, webhooks, pipes.

use crate::{Finding, Outgoing};
use async_trait::async_trait;
use std::{error::Error as StdError, fmt, time::Duration};

/// Publishes messages.
///
/// **The one promise.** `Ok` for a message means that the other side has it and will keep it, as far as it can say so. Whatever
/// may have arrived, or may not, is [`PublishError::Unknown`]: the message comes again with the same id. An implementation
/// never counts silence, a closed connection or a cut-off answer as success.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// What it speaks, in a word, for logs and metrics.
    fn kind(&self) -> &'static str;

    /// How much it takes at once.
    fn capacity(&self) -> Capacity;

    /// Publishes a batch and answers for each message, in the order of the batch. Messages are sent in that order. It never
    /// retries by itself and keeps nothing back: retries are durable state, and belong to the store.
    ///
    /// The future may be dropped at any await. What was under way then is unknown, and nothing may be left that confuses the
    /// answers of the next call.
    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>>;

    /// Whether `destinations` can keep the promise: what would lose messages there, and how to mend it. Finding nothing is the
    /// good answer.
    ///
    /// # Errors
    /// When it cannot be asked.
    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError>;

    /// Lets what is under way finish, and closes. Closing again does nothing; publishing afterwards is refused as down.
    async fn close(&self);
}

/// How much a transport takes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capacity {
    /// The most messages in one call of [`publish`](Transport::publish).
    pub batch: usize,
    /// The most bytes of one message, body and headers, where that is known. What is larger is refused before it is sent.
    pub message_bytes: Option<usize>,
    /// The most bytes of one batch, where there is such a limit.
    pub batch_bytes: Option<usize>,
}

impl Capacity {
    /// Batches of up to so many messages, of any size.
    pub const fn of(batch: usize) -> Self {
        Self { batch, message_bytes: None, batch_bytes: None }
    }

    /// No message may be larger than this.
    #[must_use]
    pub const fn with_message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = Some(bytes);
        self
    }

    /// No batch may be larger than this.
    #[must_use]
    pub const fn with_batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = Some(bytes);
        self
    }
}

/// The other side has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// It says that it had it before.
    pub is_duplicate: bool,
}

impl Receipt {
    /// Accepted.
    pub const fn new() -> Self {
        Self { is_duplicate: false }
    }

    /// Accepted before, under the same id.
    pub const fn duplicate() -> Self {
        Self { is_duplicate: true }
    }
}

/// Why a message was not published, by what is to be done next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// It was refused for now: try again, after so long if that is known.
    #[error("refused for now: {source}")]
    Retry {
        /// How long the other side asks to wait.
        after: Option<Duration>,
        /// What happened.
        source: Source,
    },
    /// It may have arrived, or not: send the same id again.
    #[error("nobody knows whether it arrived: {source}")]
    Unknown {
        /// What happened.
        source: Source,
    },
    /// It will never be taken: too large, unreadable, not allowed.
    #[error("refused for good: {source}")]
    Reject {
        /// What happened.
        source: Source,
    },
    /// Nothing gets through, whatever the message: stop sending for a while. It did not arrive.
    #[error("nothing gets through: {source}")]
    Down {
        /// What happened.
        source: Source,
    },
}

/// What is behind an error, with a name. Whoever follows it sees what it is about, and nothing in between.
#[derive(Debug)]
struct Named {
    name: &'static str,
    source: Source,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl StdError for Named {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.source()
    }
}

/// What is behind an error.
pub type Source = Box<dyn StdError + Send + Sync>;

impl PublishError {
    /// Refused for now.
    pub fn retry(source: impl Into<Source>) -> Self {
        Self::Retry { after: None, source: source.into() }
    }

    /// Refused for now, with a word on when to come again.
    pub fn retry_after(after: Duration, source: impl Into<Source>) -> Self {
        Self::Retry { after: Some(after), source: source.into() }
    }

    /// It may have arrived, or not.
    pub fn unknown(source: impl Into<Source>) -> Self {
        Self::Unknown { source: source.into() }
    }

    /// Refused for good.
    pub fn reject(source: impl Into<Source>) -> Self {
        Self::Reject { source: source.into() }
    }

    /// Nothing gets through.
    pub fn down(source: impl Into<Source>) -> Self {
        Self::Down { source: source.into() }
    }

    /// Gives it a name that tells what happened, such as `Unroutable`: one word, the same each time, without anything of the message.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        let named = |source| Box::new(Named { name, source });
        match self {
            Self::Retry { after, source } => Self::Retry { after, source: named(source) },
            Self::Unknown { source } => Self::Unknown { source: named(source) },
            Self::Reject { source } => Self::Reject { source: named(source) },
            Self::Down { source } => Self::Down { source: named(source) },
        }
    }

    /// Its name in logs and beside a dead letter: the one that it was [given](Self::named), or else its [kind](Self::kind).
    pub fn name(&self) -> &'static str {
        let (Self::Retry { source, .. }
        | Self::Unknown { source }
        | Self::Reject { source }
        | Self::Down { source }) = self;
        source.downcast_ref::<Named>().map_or_else(|| self.kind(), |named| named.name)
    }

    /// What is to be done next, in a word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "PublishRefused",
            Self::Unknown { .. } => "PublishUnknown",
            Self::Reject { .. } => "PublishRejected",
            Self::Down { .. } => "DestinationDown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_changes_what_it_is_called_and_nothing_else() {
        let after = Duration::from_secs(3);
        let inner = std::io::Error::other(fmt::Error);
        let plain = PublishError::retry_after(after, std::io::Error::other(fmt::Error));
        let named = PublishError::retry_after(after, inner).named("Unroutable");
        assert_eq!((plain.name(), named.name()), ("PublishRefused", "Unroutable"));
        assert_eq!(plain.kind(), named.kind());
        assert!(matches!(named, PublishError::Retry { after: Some(wait), .. } if wait == after));
        let chain = |error: &PublishError| {
            let mut told = vec![error.to_string()];
            let mut next = error.source();
            while let Some(error) = next {
                told.push(error.to_string());
                next = error.source();
            }
            told
        };
        assert_eq!(chain(&plain), chain(&named));
        for error in [PublishError::unknown("x"), PublishError::reject("x"), PublishError::down("x")] {
            let kind = error.kind();
            let named = error.named("Named");
            assert_eq!((named.name(), named.kind()), ("Named", kind));
        }
    }
}
