//! What a failure means: another try, and when; or none.

use crate::{
    carry::Delivery,
    failure::{Failure, Next},
};
use postrider_core::{
    Reason, Settlement,
    retry::{Attempt, Retry, Verdict, decide},
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The most that is kept of an error's text.
const MOST_ERROR_BYTES: usize = 8 * 1024;

/// What is kept of an error with its message.
#[derive(Clone, Default)]
pub enum ErrorText {
    /// The name of its type: messages carry personal data, and errors quote them.
    #[default]
    Kind,
    /// Its whole text, after it went through a function that may take away what should not be kept. At most 8 KiB.
    Full(Arc<dyn Fn(&str) -> String + Send + Sync>),
}

impl ErrorText {
    /// What is kept of a failure.
    pub(crate) fn of(&self, failure: &Failure) -> String {
        let (Self::Full(redact), Some(source)) = (self, failure.source()) else {
            return failure.kind().to_owned();
        };
        let mut text = source.to_string();
        let mut cause = source.source();
        while let Some(next) = cause {
            // Many errors tell their cause themselves.
            let told = next.to_string();
            if !text.ends_with(&told) {
                text = format!("{text}: {told}");
            }
            cause = next.source();
        }
        // A redactor that fails must not let anything through, nor take the worker along.
        let Ok(text) = catch_unwind(AssertUnwindSafe(|| redact(&text))) else {
            return failure.kind().to_owned();
        };
        let mut text = format!("{}: {text}", failure.kind());
        text.truncate(text.floor_char_boundary(MOST_ERROR_BYTES));
        text
    }
}

impl fmt::Debug for ErrorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "Kind",
            Self::Full(_) => "Full",
        })
    }
}

/// Gives a message up that was claimed more often than allowed: it may be what kills its workers.
pub(crate) fn claimed_too_often(max_deliveries: Option<u32>, delivery: &Delivery) -> Option<Settlement> {
    let is_given_up = max_deliveries.is_some_and(|max| delivery.claimed.deliveries > max);
    let error = Some("MaxDeliveries".to_owned());
    is_given_up.then_some(Settlement::Dead { reason: Reason::MaxDeliveries, error })
}

/// Decides about failed deliveries of one queue.
pub(crate) struct Judge {
    pub(crate) retry: Arc<dyn Retry>,
    pub(crate) error_text: ErrorText,
}

impl Judge {
    /// How a delivery that failed is settled.
    pub(crate) fn settle(&self, failure: &Failure, delivery: &Delivery) -> Settlement {
        let error = self.error_text.of(failure);
        let settlement = match failure.next {
            Next::Reject => Settlement::Dead { reason: Reason::Rejected, error: Some(error) },
            Next::Undecodable => Settlement::Dead { reason: Reason::Undecodable, error: Some(error) },
            Next::Snooze(after) => return Settlement::Snooze { after },
            Next::Retry | Next::RetryAfter(_) => match (self.verdict(&error, delivery), failure.next) {
                (Verdict::GiveUp, _) => {
                    Settlement::Dead { reason: Reason::RetriesExhausted, error: Some(error) }
                }
                (Verdict::After(_), Next::RetryAfter(after)) | (Verdict::After(after), _) => {
                    Settlement::Retry { after, error: Some(error) }
                }
            },
        };
        match &settlement {
            Settlement::Retry { after, .. } => {
                tracing::info!(name: "postrider.retried", error = failure.kind(), ?after, "failed; will be tried again");
            }
            Settlement::Dead { reason, .. } => {
                tracing::warn!(name: "postrider.dead", error = failure.kind(), %reason, "failed for good");
            }
            Settlement::Done
            | Settlement::Forward { .. }
            | Settlement::Release
            | Settlement::Snooze { .. } => {}
        }
        settlement
    }

    fn verdict(&self, error: &str, delivery: &Delivery) -> Verdict {
        let claimed = &delivery.claimed;
        // The store keeps no time of the first attempt. Nothing was tried before it was staged. A clock here that is behind
        // the store's does not make it younger than the store says.
        let elapsed = match claimed.attempts {
            0 => Duration::ZERO,
            _ => since(claimed.staged_at, SystemTime::now()).max(since(claimed.staged_at, claimed.due_at)),
        };
        let attempt = Attempt { number: claimed.attempts.saturating_add(1), elapsed, error };
        decide(self.retry.as_ref(), &attempt, &mut rand::rng())
    }
}

fn since(earlier: SystemTime, later: SystemTime) -> Duration {
    later.duration_since(earlier).unwrap_or(Duration::ZERO)
}
