//! How a handler says that it failed.

use postrider_core::store::Source;
use std::{any::type_name, borrow::Cow, fmt, time::Duration};

/// A handler's failure, by what is to happen next. `?` turns any error into one that is retried.
///
/// It is no error itself: otherwise `?` could not take every error there is.
///
/// ```
/// # use postrider_engine::Failure;
/// # use std::time::Duration;
/// fn charge(amount: &str) -> Result<(), Failure> {
///     let amount: u64 = amount.parse()?; // retried, as the queue's strategy says
///     match amount {
///         0 => Err(Failure::reject("there is nothing to charge")), // a dead letter at once
///         1..100 => Ok(()),
///         _ => Err(Failure::snooze(Duration::from_secs(3600))), // later, and no failure at all
///     }
/// }
/// assert!(charge("12").is_ok());
/// ```
pub struct Failure {
    pub(crate) next: Next,
    pub(crate) kind: Cow<'static, str>,
    pub(crate) source: Option<Source>,
}

/// What is to happen after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// Another try, when the queue's strategy says so.
    Retry,
    /// Another try after so long.
    RetryAfter(Duration),
    /// A dead letter.
    Reject,
    /// The same message after so long, as if nothing had happened.
    Snooze(Duration),
    /// A dead letter, because the payload cannot be read.
    Undecodable,
}

impl Failure {
    /// Tries again, when the queue's strategy says so. What `?` gives.
    pub fn retry<E: Into<Source>>(error: E) -> Self {
        Self { next: Next::Retry, kind: kind_of::<E>(), source: Some(error.into()) }
    }

    /// Tries again after so long, whatever the delay of the queue's strategy; its limit of attempts still holds.
    pub fn retry_after<E: Into<Source>>(after: Duration, error: E) -> Self {
        Self { next: Next::RetryAfter(after), ..Self::retry(error) }
    }

    /// Never tries again: the message becomes a dead letter.
    pub fn reject<E: Into<Source>>(error: E) -> Self {
        Self { next: Next::Reject, ..Self::retry(error) }
    }

    /// Not now: the message comes back after so long. It counts neither as a delivery nor as an attempt.
    pub fn snooze(after: Duration) -> Self {
        Self { next: Next::Snooze(after), kind: "Snoozed".into(), source: None }
    }

    /// The payload cannot be read, and reading it again will not help.
    pub(crate) fn undecodable(error: postrider_core::CodecError) -> Self {
        Self { next: Next::Undecodable, kind: "CodecError".into(), source: Some(error.into()) }
    }

    /// A failure of the engine's own making, such as a timeout.
    pub(crate) fn of_kind(next: Next, kind: &'static str, text: impl Into<Source>) -> Self {
        Self { next, kind: kind.into(), source: Some(text.into()) }
    }

    /// Calls the kind of error by this name, where the type's own says too little. It is what is kept and counted.
    #[must_use]
    pub fn named(mut self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.kind = kind.into();
        self
    }

    /// What is to happen next.
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

impl<E: Into<Source>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}

impl fmt::Debug for Failure {
    /// Shows the kind and not the text, which may carry personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("next", &self.next).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// The name of a type without its path: `io::Error` and `my::deep::Error<T>` are both `Error`.
fn kind_of<E>() -> Cow<'static, str> {
    let full = type_name::<E>();
    let plain = full.split('<').next().unwrap_or(full);
    match plain.rsplit("::").next().unwrap_or(plain) {
        // What was only ever text.
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
    fn any_error_becomes_a_retry_that_is_named_by_its_type() {
        fn fails() -> Result<(), Failure> {
            Err(Declined("4711"))?;
            Ok(())
        }
        let failure = fails().unwrap_err();
        assert_eq!((failure.next, failure.kind()), (Next::Retry, "Declined"));
        assert_eq!(failure.source().map(ToString::to_string).as_deref(), Some("card 4711 was declined"));
    }

    #[test]
    fn texts_and_boxes_are_errors_too() {
        let boxed: Source = "boxed".into();
        for failure in [Failure::from("text"), Failure::from(String::from("owned")), Failure::from(boxed)] {
            assert_eq!(failure.kind(), "Error");
        }
        assert_eq!(Failure::from("text").named("CardDeclined").kind(), "CardDeclined");
    }

    #[test]
    fn what_it_shows_is_not_personal() {
        assert!(!format!("{:?}", Failure::from(Declined("4711"))).contains("4711"));
    }
}
