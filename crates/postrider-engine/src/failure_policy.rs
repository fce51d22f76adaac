//! The settlement of a failed delivery: retry and when, or dead letter.

use crate::{
    delivery_loop::Delivery,
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
    time::Duration,
};

/// The maximum stored length of an error text.
const MOST_ERROR_BYTES: usize = 8 * 1024;

/// The part of an error that is stored with its message.
#[derive(Clone, Default)]
pub enum ErrorText {
    /// The name of its type: messages contain personal data, and errors quote them.
    #[default]
    Kind,
    /// Its whole text, after a redaction function removed what must not be stored. At most 8 KiB.
    Full(Arc<dyn Fn(&str) -> String + Send + Sync>),
}

impl ErrorText {
    /// The stored text of a failure.
    pub(crate) fn of(&self, failure: &Failure) -> String {
        let (Self::Full(redact), Some(source)) = (self, failure.source()) else {
            return failure.kind().to_owned();
        };
        let mut text = source.to_string();
        let mut cause = source.source();
        while let Some(next) = cause {
            // Many error texts include their cause already.
            let cause_text = next.to_string();
            if !text.ends_with(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            cause = next.source();
        }
        // A redaction function that panics must not leak the text, nor stop the worker.
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

/// Dead-letters a message whose deliveries began as often as allowed: its handler may be crashing the workers. A limit of one forbids
/// every delivery that may be a second one, and so a claim counts there, whether or not its delivery began.
pub(crate) fn settle_max_deliveries(max_deliveries: Option<u32>, delivery: &Delivery) -> Option<Settlement> {
    let claimed = &delivery.claimed;
    let is_exceeded = match max_deliveries {
        None => false,
        Some(1) => claimed.deliveries > 1,
        Some(max) => claimed.begun() >= max,
    };
    let error = Some("MaxDeliveries".to_owned());
    is_exceeded.then_some(Settlement::Dead { reason: Reason::MaxDeliveries, error })
}

/// Decides how failed deliveries of one queue are settled.
pub(crate) struct FailurePolicy {
    pub(crate) retry: Arc<dyn Retry>,
    pub(crate) error_text: ErrorText,
}

impl FailurePolicy {
    /// The settlement of a failed delivery.
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
                tracing::info!(
                    name: "postrider.retried", error = failure.kind(), ?after,
                    "delivery failed ({}); retrying in {after:?}", failure.kind()
                );
            }
            Settlement::Dead { reason, .. } => {
                tracing::warn!(
                    name: "postrider.dead", error = failure.kind(), %reason,
                    "delivery failed permanently ({}): message dead-lettered, {reason}", failure.kind()
                );
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
        // By the store's clock, whatever the clock of this process says.
        let elapsed = match (claimed.attempts, claimed.first_failed_at) {
            (1.., Some(first)) => delivery.store_now().duration_since(first).unwrap_or(Duration::ZERO),
            _ => Duration::ZERO,
        };
        let attempt = Attempt { number: claimed.attempts.saturating_add(1), elapsed, error };
        decide(self.retry.as_ref(), &attempt, &mut rand::rng())
    }
}
