//! The failure of a handler, and its consequence.

use postrider_core::BoxError;
use std::{any::type_name, borrow::Cow, fmt, time::Duration};

/// A handler's failure and its consequence. `?` turns any error into one that is retried.
///
/// It does not implement `Error`: otherwise `?` could not convert every error.
///
/// ```
/// # use postrider_engine::Failure;
/// # use std::time::Duration;
/// fn charge(amount: &str) -> Result<(), Failure> {
///     let amount: u64 = amount.parse()?; // retried, by the queue's retry strategy
///     match amount {
///         0 => Err(Failure::reject("there is nothing to charge")), // dead-lettered at once
///         1..100 => Ok(()),
///         _ => Err(Failure::snooze(Duration::from_secs(3600))), // later, without counting as a failure
///     }
/// }
/// assert!(charge("12").is_ok());
/// ```
pub struct Failure {
    pub(crate) next: Next,
    pub(crate) kind: Cow<'static, str>,
    pub(crate) source: Option<BoxError>,
}

/// The consequence of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// Retry, by the queue's retry strategy.
    Retry,
    /// Retry after this delay.
    RetryAfter(Duration),
    /// Dead-letter the message.
    Reject,
    /// Deliver the message again after this delay, without counting an attempt.
    Snooze(Duration),
    /// Dead-letter the message, because its payload cannot be decoded.
    Undecodable,
}

impl Failure {
    /// Retries the message, by the queue's retry strategy. `?` does the same.
    pub fn retry<E: Into<BoxError>>(error: E) -> Self {
        Self { next: Next::Retry, kind: kind_of::<E>(), source: Some(error.into()) }
    }

    /// Retries the message after this delay instead of the retry strategy's; the strategy's maximum number of attempts
    /// still applies.
    pub fn retry_after<E: Into<BoxError>>(after: Duration, error: E) -> Self {
        Self { next: Next::RetryAfter(after), ..Self::retry(error) }
    }

    /// Never retries: the message is dead-lettered.
    pub fn reject<E: Into<BoxError>>(error: E) -> Self {
        Self { next: Next::Reject, ..Self::retry(error) }
    }

    /// Snoozes the message: it is delivered again after this delay. Neither a delivery nor an attempt is counted.
    pub fn snooze(after: Duration) -> Self {
        Self { next: Next::Snooze(after), kind: "Snoozed".into(), source: None }
    }

    /// The payload cannot be decoded, and a retry would not help.
    pub(crate) fn undecodable(error: postrider_core::CodecError) -> Self {
        Self { next: Next::Undecodable, kind: "CodecError".into(), source: Some(error.into()) }
    }

    /// A failure that the engine reports, such as a timeout.
    pub(crate) fn of_kind(next: Next, kind: &'static str, text: impl Into<BoxError>) -> Self {
        Self { next, kind: kind.into(), source: Some(text.into()) }
    }

    /// Sets the kind of error, where the type's name says too little. The kind is stored and counted.
    #[must_use]
    pub fn named(mut self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// The consequence of this failure.
    pub fn next(&self) -> Next {
        self.next
    }

    /// The kind of error: the name of its type, without its path.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The error itself.
    pub fn source(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }
}

impl<E: Into<BoxError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Debug for Failure {
    /// Shows the kind and not the text, which may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("next", &self.next).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The name of a type without its path: `io::Error` and `my::deep::Error<T>` are both `Error`.
fn kind_of<E>() -> Cow<'static, str> {
    let full = type_name::<E>();
    let plain = full.split('<').next().unwrap_or(full);
    match plain.rsplit("::").next().unwrap_or(plain) {
        // Errors without a type of their own.
        "&str" | "String" | "Box" => "Error".into(),
        kind => kind.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("card {0} was declined")]
    struct Declined(&'static str);

    #[test]
    fn question_mark_makes_a_retry_named_by_the_error_type() {
        fn fails() -> Result<(), Failure> {
            Err(Declined("4711"))?;
            Ok(())
        }
        let failure = fails().unwrap_err();
        assert_eq!((failure.next, failure.kind()), (Next::Retry, "Declined"));
        assert_eq!(failure.source().map(ToString::to_string).as_deref(), Some("card 4711 was declined"));
    }

    #[test]
    fn texts_and_boxed_errors_have_the_kind_error() {
        let boxed: BoxError = "boxed".into();
        for failure in [Failure::from("text"), Failure::from(String::from("owned")), Failure::from(boxed)] {
            assert_eq!(failure.kind(), "Error");
        }
        assert_eq!(Failure::from("text").named("CardDeclined").kind(), "CardDeclined");
    }

    #[test]
    fn debug_output_omits_the_error_text() {
        assert!(!format!("{:?}", Failure::from(Declined("4711"))).contains("4711"));
    }
}
