//! How long marks are kept, and whether that is long enough.
//!
//! A message whose mark is gone is new when it comes again. So a mark is kept for longer than its message can come again: for as long as
//! the broker keeps it, and before that for as long as the sender may send it once more because it never heard that it had arrived.

use super::work::Work;
use postrider_core::{ConsumerName, PruneRequest, Receive, Redelivers, SourceError, Store};
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// For how long a sender may send a message again that it never heard to have arrived, unless a consumer is
/// [told otherwise](super::ConsumerBuilder::resent_within).
pub const RESENT_WITHIN: Duration = A_DAY;

const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Where a broker keeps messages for ever and nobody says otherwise.
const A_MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// How long a source may take to say how long it keeps messages.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often old marks are removed.
const PRUNE_EVERY: Duration = Duration::from_secs(10 * 60);

/// How long marks have to be kept of what the broker may deliver again for `redelivered`, after its sender may have sent it again for
/// `resent`.
pub fn marks_needed(redelivered: Duration, resent: Duration) -> Duration {
    redelivered.saturating_add(resent)
}

/// Why a consumer does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Marks would be gone before the last duplicate came.
    #[error(
        "{consumer} keeps its marks for {}, but a message can come again for {}: {because}{}; a duplicate after \
         that would have its effect twice. Give `keep_marks_for` at least {}, or let the broker keep messages for less",
        days(.keeps), days(.within), and_resent(.resent), days(.needed)
    )]
    MarksTooShort {
        /// Whose marks.
        consumer: ConsumerName,
        /// How long they are kept.
        keeps: Duration,
        /// How long the broker may deliver a message again.
        within: Duration,
        /// What says so.
        because: String,
        /// How long the sender may send it again.
        resent: Duration,
        /// How long marks have to be kept.
        needed: Duration,
    },
    /// The source cannot be asked.
    #[error("the source cannot be asked how long it keeps messages: {0}")]
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
        format!(", and its sender may send it again for {}", days(resent))
    }
}

impl<R: Receive> Work<R> {
    /// How long marks are to be kept.
    pub(super) async fn retention(&self) -> Result<Duration, StartError> {
        let redelivers = match self.redelivered_within {
            Some(within) => Redelivers::within(within, "`redelivered_within` says so"),
            None => match timeout(PATIENCE, self.source.redelivers()).await {
                Ok(redelivers) => redelivers?,
                Err(late) => return Err(SourceError::down(late).into()),
            },
        };
        let Some(within) = redelivers.within else {
            let keeps = self.keep_marks_for.unwrap_or(A_MONTH);
            tracing::warn!(
                name: "postrider.redelivered_for_ever",
                consumer = %self.name, because = redelivers.because, ?keeps,
                "the broker keeps messages for ever: one that comes again after its mark is gone would be handled twice; say with \
                 `redelivered_within` how long that can be"
            );
            return Ok(keeps);
        };
        let needed = marks_needed(within, self.resent_within);
        match self.keep_marks_for {
            Some(keeps) if keeps < needed => Err(StartError::MarksTooShort {
                consumer: self.name.clone(),
                keeps,
                within,
                because: redelivers.because,
                resent: self.resent_within,
                needed,
            }),
            Some(keeps) => Ok(keeps),
            None => Ok(needed.max(A_DAY)),
        }
    }

    /// The loop that removes old marks, in bounded steps.
    pub(super) async fn forget(self: Arc<Self>, keeps: Duration) {
        let store = self.store.store();
        let request = PruneRequest::new().with_inbox_of(self.name.clone(), keeps);
        loop {
            // Chance keeps processes apart.
            sleep(PRUNE_EVERY.mul_f64(rand::random_range(0.5..1.5))).await;
            loop {
                match store.prune(&request).await {
                    Ok(pruned) if pruned.more => tokio::task::yield_now().await,
                    Ok(_) => break,
                    Err(error) => {
                        self.trouble.happened("removing old marks", &error);
                        break;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arithmetic_is_in_the_words() {
        let error = StartError::MarksTooShort {
            consumer: ConsumerName::new("billing").unwrap(),
            keeps: 2 * A_DAY,
            within: 4 * A_DAY,
            because: "MessageRetentionPeriod of the queue is 345600 s".to_owned(),
            resent: A_DAY,
            needed: 5 * A_DAY,
        };
        let words = "billing keeps its marks for 2 d, but a message can come again for 4 d: MessageRetentionPeriod of the queue is \
            345600 s, and its sender may send it again for 1 d; a duplicate after that would have its effect twice. Give \
            `keep_marks_for` at least 5 d, or let the broker keep messages for less";
        assert_eq!(error.to_string(), words);
    }
}
