//! The interface to brokers and webhooks to which a relay publishes.

use crate::{BoxError, Finding, Outgoing};
use async_trait::async_trait;
use std::{error::Error as StdError, fmt, time::Duration};

/// Publishes messages.
///
/// **The one promise.** `Ok` for a message means that the broker has accepted and stored it, as far as the broker confirms that. A
/// message that may or may not have arrived is [`PublishError::Unknown`]: the relay sends it again with the same id. An implementation
/// never counts silence, a closed connection or a truncated reply as success.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// The protocol in one word, for logs and metrics.
    fn kind(&self) -> &'static str;

    /// The limits of one call of [`publish`](Self::publish).
    fn capacity(&self) -> Capacity;

    /// Publishes a batch and returns the result for each message, in the order of the batch. Messages are sent in that order. A
    /// transport never retries and buffers nothing: retries are durable state and belong to the store.
    ///
    /// The future may be dropped at any await. The outcome of the messages in flight is then unknown, and a late reply must not be
    /// taken for a reply to the next call.
    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>>;

    /// Checks `destinations` for settings that could lose messages. Each finding has its fix; an empty list means that all is well.
    ///
    /// # Errors
    /// When the broker cannot be asked.
    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError>;

    /// Waits for publishes in flight, and closes. Closing again does nothing; publishing afterwards fails as unavailable.
    async fn close(&self);
}

/// The limits of one publish call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capacity {
    /// The largest batch, in messages.
    pub batch: usize,
    /// The largest message in bytes, body and headers, where that is known. A larger one is rejected before it is sent.
    pub message_bytes: Option<usize>,
    /// The largest batch in bytes, where there is such a limit.
    pub batch_bytes: Option<usize>,
}

impl Capacity {
    /// Batches of up to `batch` messages of any size.
    pub const fn of(batch: usize) -> Self {
        Self { batch, message_bytes: None, batch_bytes: None }
    }

    /// Limits the size of a message.
    #[must_use]
    pub const fn with_message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = Some(bytes);
        self
    }

    /// Limits the size of a batch.
    #[must_use]
    pub const fn with_batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = Some(bytes);
        self
    }
}

/// The broker's acceptance of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The broker reports that it had accepted the same id before.
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

/// Why a message was not published, grouped by what the relay does next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// Rejected temporarily: retry, after the given time if the broker names one.
    #[error("rejected temporarily: {source}")]
    Retry {
        /// The wait that the broker asks for.
        after: Option<Duration>,
        /// The cause.
        source: BoxError,
    },
    /// The message may or may not have arrived: send the same id again.
    #[error("outcome unknown: {source}")]
    Unknown {
        /// The cause.
        source: BoxError,
    },
    /// Rejected permanently: too large, malformed, not allowed.
    #[error("rejected permanently: {source}")]
    Reject {
        /// The cause.
        source: BoxError,
    },
    /// The destination is unavailable for any message: open the circuit. The message did not arrive.
    #[error("destination unavailable: {source}")]
    Unavailable {
        /// The cause.
        source: BoxError,
    },
    /// The address accepts no message: it is missing, forbidden, or fails every message. The message did not arrive. The relay opens the
    /// circuit, unless other addresses of the destination accept messages: then it is a failed attempt of this message.
    #[error("address unavailable: {source}")]
    AddressUnavailable {
        /// The cause, with its fix.
        source: BoxError,
    },
}

/// A cause with a stable name. Its own source is that of the wrapped error.
#[derive(Debug)]
struct Named {
    name: &'static str,
    source: BoxError,
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

impl PublishError {
    /// Rejected temporarily.
    pub fn retry(source: impl Into<BoxError>) -> Self {
        Self::Retry { after: None, source: source.into() }
    }

    /// Rejected temporarily, with the wait that the broker asks for.
    pub fn retry_after(after: Duration, source: impl Into<BoxError>) -> Self {
        Self::Retry { after: Some(after), source: source.into() }
    }

    /// The message may or may not have arrived.
    pub fn unknown(source: impl Into<BoxError>) -> Self {
        Self::Unknown { source: source.into() }
    }

    /// Rejected permanently.
    pub fn reject(source: impl Into<BoxError>) -> Self {
        Self::Reject { source: source.into() }
    }

    /// The destination is unavailable.
    pub fn unavailable(source: impl Into<BoxError>) -> Self {
        Self::Unavailable { source: source.into() }
    }

    /// The address accepts no message. The error should name the fix.
    pub fn address_unavailable(source: impl Into<BoxError>) -> Self {
        Self::AddressUnavailable { source: source.into() }
    }

    /// Names the error, such as `Unroutable`: one stable word without any content of the message.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        let named = |source| Box::new(Named { name, source });
        match self {
            Self::Retry { after, source } => Self::Retry { after, source: named(source) },
            Self::Unknown { source } => Self::Unknown { source: named(source) },
            Self::Reject { source } => Self::Reject { source: named(source) },
            Self::Unavailable { source } => Self::Unavailable { source: named(source) },
            Self::AddressUnavailable { source } => Self::AddressUnavailable { source: named(source) },
        }
    }

    /// Its name in logs and beside a dead letter: the one that it was [given](Self::named), or else its [kind](Self::kind).
    pub fn name(&self) -> &'static str {
        let (Self::Retry { source, .. }
        | Self::Unknown { source }
        | Self::Reject { source }
        | Self::Unavailable { source }
        | Self::AddressUnavailable { source }) = self;
        source.downcast_ref::<Named>().map_or_else(|| self.kind(), |named| named.name)
    }

    /// What is to be done next, in a word.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "PublishRefused",
            Self::Unknown { .. } => "PublishUnknown",
            Self::Reject { .. } => "PublishRejected",
            Self::Unavailable { .. } => "DestinationDown",
            Self::AddressUnavailable { .. } => "AddressUnavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_error_changes_only_its_name() {
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
        for error in [
            PublishError::unknown("x"),
            PublishError::reject("x"),
            PublishError::unavailable("x"),
            PublishError::address_unavailable("x"),
        ] {
            let kind = error.kind();
            let named = error.named("Named");
            assert_eq!((named.name(), named.kind()), ("Named", kind));
        }
    }
}
