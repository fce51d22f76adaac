//! Delivering to a destination, and what its answer means.

use super::{
    post::Post,
    route::{Change, Only},
};
use crate::{
    carry::{Deliver, Delivery, Outcome},
    failure::{Failure, Next},
    judge::Judge,
};
use futures_util::future::BoxFuture;
use postrider_core::{Format, Outgoing, PublishError, Reason, Settlement, Template};
use std::{borrow::Cow, fmt, panic::AssertUnwindSafe, sync::Arc};
use tracing::Instrument;

/// Sends the messages of a queue.
pub(super) struct Relaying {
    pub(super) leg: Leg,
    pub(super) source: Arc<str>,
    pub(super) judge: Judge,
    pub(super) max_deliveries: Option<u32>,
}

/// One way that messages of a queue go.
pub(super) struct Leg {
    pub(super) post: Arc<Post>,
    pub(super) address: Template,
    pub(super) format: Format,
    pub(super) only: Option<Only>,
    pub(super) change: Option<Change>,
}

impl Deliver for Relaying {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        let claimed = &delivery.claimed;
        let span = tracing::info_span!(
            "postrider.relay",
            queue = %claimed.lease.queue(),
            message = %claimed.id(),
            destination = self.leg.post.destination,
            attempt = claimed.attempts.saturating_add(1),
            deliveries = claimed.deliveries,
            correlation = claimed.message.trail().correlation_id.as_deref(),
            traceparent = claimed.message.trail().traceparent.as_deref(),
        );
        let relaying = async { Outcome::Settle(self.settle(delivery).await) };
        #[cfg(feature = "opentelemetry")]
        let relaying = crate::link::linked(relaying, &span, claimed.message.trail());
        Box::pin(relaying.instrument(span))
    }

    fn commits(&self, _: &Delivery) -> bool {
        false
    }
}

impl Relaying {
    async fn settle(&self, delivery: &Arc<Delivery>) -> Settlement {
        if self.max_deliveries.is_some_and(|max| delivery.claimed.deliveries > max) {
            let error = Some("MaxDeliveries".to_owned());
            return Settlement::Dead { reason: Reason::MaxDeliveries, error };
        }
        let failure = match self.leg.written(delivery, &self.source) {
            Ok(None) => return Settlement::Done,
            Ok(Some(outgoing)) => match self.leg.post.send(outgoing).await {
                Ok(_) => return Settlement::Done,
                // No fault of the message: it waits uncounted until something gets through again.
                Err(PublishError::Down { .. }) => return Settlement::Release,
                Err(error) => failed(error),
            },
            Err(failure) => failure,
        };
        self.judge.settle(&failure, delivery)
    }
}

fn failed(error: PublishError) -> Failure {
    let next = match &error {
        PublishError::Retry { after: Some(after), .. } => Next::RetryAfter(*after),
        PublishError::Reject { .. } => Next::Reject,
        _ => Next::Retry,
    };
    let kind = error.kind();
    Failure::of_kind(next, kind, error)
}

impl Leg {
    /// The message as it goes there; `None` when it does not. Written anew for each attempt: it costs little, and nothing is kept.
    fn written(&self, delivery: &Delivery, source: &str) -> Result<Option<Outgoing>, Failure> {
        let claimed = &delivery.claimed;
        let message = &claimed.message;
        let refused = |kind: &'static str, error: String| Failure::of_kind(Next::Reject, kind, error);
        // What users give is theirs: it must not take the relay along.
        let asked = std::panic::catch_unwind(AssertUnwindSafe(|| {
            if self.only.as_ref().is_some_and(|only| !only(message)) {
                return Ok(None);
            }
            match &self.change {
                None => Ok(Some(Cow::Borrowed(message))),
                Some(change) => change(message).build().map(|changed| Some(Cow::Owned(changed))),
            }
        }));
        let message = match asked {
            Ok(Ok(Some(message))) => message,
            Ok(Ok(None)) => return Ok(None),
            Ok(Err(invalid)) => return Err(refused("InvalidMessage", invalid.to_string())),
            Err(_) => return Err(Failure::of_kind(Next::Retry, "Panic", "a function of the route panicked")),
        };
        let address =
            self.address.render(&message).map_err(|invalid| refused("NoAddress", invalid.to_string()))?;
        let outgoing =
            Outgoing::write(&message, claimed.id(), claimed.staged_at, source, address, self.format)
                .map_err(|invalid| {
                    Failure::of_kind(Next::Undecodable, "InvalidMessage", invalid.to_string())
                })?;
        if let Some(most) = self.post.capacity.message_bytes.filter(|most| outgoing.size() > *most) {
            let error = format!(
                "{} bytes are too many for {}: it takes {most}",
                outgoing.size(),
                self.post.destination
            );
            return Err(refused("TooLarge", error));
        }
        Ok(Some(outgoing))
    }
}

impl fmt::Debug for Relaying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relaying").field("leg", &self.leg).finish_non_exhaustive()
    }
}

impl fmt::Debug for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leg")
            .field("post", &self.post)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
