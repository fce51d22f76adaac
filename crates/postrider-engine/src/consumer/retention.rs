//! Retention of deduplication records, and whether it is long enough.
//!
//! A redelivered message without a record is handled as new. So a record is kept for longer than its message can be
//! redelivered: for as long as the broker keeps the message, and before that for as long as the sender may resend it because it
//! was not confirmed.

use super::{
    processor::{ConsumerState, Processor, StartState},
    receiver::FIRST_BACKOFF,
};
use crate::{delivery_loop::backoff::Backoff, pruner::Pruner};
use postrider_core::{ConsumerName, PruneRequest, RedeliveryWindow, SourceError, TxBackend};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// Default of [`ConsumerBuilder::resend_window`](super::ConsumerBuilder::resend_window): how long a sender may resend a message
/// that was not confirmed.
pub const RESEND_WINDOW: Duration = A_DAY;

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// For brokers that keep messages without limit, when nothing is configured.
const A_MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Timeout for a source to report its redelivery window.
const QUERY_TIMEOUT: Duration = Duration::from_secs(10);

/// The required retention of deduplication records, for a broker that may redeliver a message for `redelivered`, after its
/// sender may have resent it for `resent`.
pub fn deduplication_window(redelivered: Duration, resent: Duration) -> Duration {
    redelivered.saturating_add(resent)
}

/// Why a consumer does not receive yet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Deduplication records would expire before the last possible duplicate.
    #[error(
        "consumer {consumer} keeps deduplication records for {}, but a message can be redelivered for {}: {because}{}; a later \
         duplicate would take effect twice. Set `keep_deduplication_records_for` to at least {}, or shorten the broker's retention",
        days(.keeps), days(.within), and_resent(.resent), days(.needed)
    )]
    RetentionTooShort {
        /// The consumer.
        consumer: ConsumerName,
        /// Its retention of deduplication records.
        keeps: Duration,
        /// The broker's redelivery window.
        within: Duration,
        /// The broker setting that says so.
        because: String,
        /// The sender's resend window.
        resent: Duration,
        /// The required retention.
        needed: Duration,
    },
    /// The consumer has just started: the source has not yet reported its redelivery window.
    #[error("the source has not answered yet")]
    Unanswered,
    /// The source did not report its redelivery window.
    #[error(
        "cannot read from the source how long it may redeliver messages: {0}; check the connection, or set `redelivery_window`"
    )]
    Source(#[from] SourceError),
}

fn days(duration: &Duration) -> String {
    let hours = duration.as_secs().div_ceil(60 * 60);
    match (hours / 24, hours % 24) {
        _ if duration.as_secs() < 2 * 60 * 60 => format!("{duration:?}"),
        (0, hours) => format!("{hours} h"),
        (days, 0) => format!("{days} d"),
        (days, hours) => format!("{days} d {hours} h"),
    }
}

fn and_resent(resent: &Duration) -> String {
    if resent.is_zero() {
        String::new()
    } else {
        format!(", and its sender may resend it for {}", days(resent))
    }
}

impl<R: TxBackend> Processor<R> {
    /// The retention of deduplication records.
    pub(super) async fn retention(&self) -> Result<Duration, StartError> {
        let redelivers = match self.redelivery_window {
            Some(within) => RedeliveryWindow::within(within, "`redelivery_window` is set"),
            None => match timeout(QUERY_TIMEOUT, self.source.redelivery_window()).await {
                Ok(redelivers) => redelivers?,
                Err(late) => return Err(SourceError::unavailable(late).into()),
            },
        };
        let Some(within) = redelivers.within else {
            let keeps = self.keep_deduplication_records_for.unwrap_or(A_MONTH);
            tracing::warn!(
                name: "postrider.unbounded_redelivery",
                consumer = %self.name, because = redelivers.reason, ?keeps,
                "the broker of consumer {} keeps messages without limit ({}): a message redelivered after {keeps:?} would be handled twice; \
                 set `redelivery_window` to the longest possible redelivery", self.name, redelivers.reason
            );
            return Ok(keeps);
        };
        let needed = deduplication_window(within, self.resend_window);
        match self.keep_deduplication_records_for {
            Some(keeps) if keeps < needed => Err(StartError::RetentionTooShort {
                consumer: self.name.clone(),
                keeps,
                within,
                because: redelivers.reason,
                resent: self.resend_window,
                needed,
            }),
            Some(keeps) => Ok(keeps),
            None => Ok(needed.max(A_DAY)),
        }
    }

    /// Asks the source for its redelivery window until it answers and deduplication records are kept long enough. Returns
    /// `false` when the consumer stops first.
    pub(super) async fn start_receiving(&self, state: &ConsumerState) -> bool {
        let mut backoff = Backoff::new(FIRST_BACKOFF.min(self.restart_backoff_max), self.restart_backoff_max);
        let mut logged = String::new();
        loop {
            let error = tokio::select! {
                biased;
                () = state.stop.cancelled() => return false,
                retention = self.retention() => match retention {
                    Ok(keeps) => {
                        state.start.send_replace(StartState::Started(keeps));
                        return true;
                    }
                    Err(error) => error,
                },
            };
            let text = error.to_string();
            if text != logged {
                tracing::warn!(
                    name: "postrider.consumer_not_started", consumer = %self.name, error = text,
                    "consumer {} does not receive: {text}; retrying with backoff", self.name
                );
                logged = text;
            }
            state.start.send_replace(StartState::Pending(Arc::new(error)));
            if state.stop.run_until_cancelled(sleep(backoff.next_delay())).await.is_none() {
                return false;
            }
        }
    }

    /// Removes expired rows, once it is known how long deduplication records are kept.
    pub(super) async fn prune(self: Arc<Self>, interval: Duration, state: Arc<ConsumerState>) {
        let keeps = state.started().await;
        let request = PruneRequest::new().with_inbox_of(self.name.clone(), keeps);
        Pruner::new(Arc::new(self.store.backend()), request, interval).run().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_error_shows_its_arithmetic() {
        let error = StartError::RetentionTooShort {
            consumer: ConsumerName::new("billing").unwrap(),
            keeps: 2 * A_DAY,
            within: 4 * A_DAY,
            because: "MessageRetentionPeriod of the queue is 345600 s".to_owned(),
            resent: A_DAY,
            needed: 5 * A_DAY,
        };
        let words = "consumer billing keeps deduplication records for 2 d, but a message can be redelivered for 4 d: \
            MessageRetentionPeriod of the queue is 345600 s, and its sender may resend it for 1 d; a later duplicate would take \
            effect twice. Set `keep_deduplication_records_for` to at least 5 d, or shorten the broker's retention";
        assert_eq!(error.to_string(), words);
    }
}
