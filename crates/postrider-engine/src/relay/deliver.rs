//! Delivering to a destination, and what its answer means.

use super::{
    post::{Answer, Post, unanswered},
    route::{Change, Only},
};
use crate::{
    carry::{Deliver, Delivery, Outcome, Tell, Together},
    failure::{Failure, Next},
    judge::{Judge, claimed_too_often},
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_core::{Format, Outgoing, PublishError, QueueName, Settlement, Template};
use std::{borrow::Cow, fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::task::coop::consume_budget;
use tracing::{Instrument, Span};

/// Sends the messages of a queue to one destination.
pub(super) struct Relaying {
    pub(super) leg: Arc<Leg>,
    pub(super) source: Arc<str>,
    pub(super) judge: Judge,
    pub(super) max_deliveries: Option<u32>,
    /// What its queue was declared to be: a queue of a route with several destinations must be as ordered as its source.
    pub(super) is_ordered: Option<bool>,
}

/// One way that messages of a queue go.
pub(super) struct Leg {
    pub(super) post: Arc<Post>,
    /// Where messages wait that went to other destinations of their route, and not to this one.
    pub(super) queue: QueueName,
    pub(super) address: Template,
    pub(super) format: Format,
    pub(super) only: Option<Only>,
    pub(super) change: Option<Change>,
}

impl Deliver for Relaying {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        relaying(self.settle(delivery), delivery, &self.leg.post.destination)
    }

    fn commits(&self, _: &Delivery) -> bool {
        false
    }

    fn leaves(&self) -> bool {
        false
    }

    fn together(&self) -> Option<&dyn Together> {
        Some(self)
    }
}

impl Together for Relaying {
    fn most(&self) -> usize {
        self.leg.post.capacity.batch
    }

    fn deliver_all<'d>(&'d self, deliveries: &'d [Arc<Delivery>], tell: &'d Tell<'d>) -> BoxFuture<'d, ()> {
        Box::pin(async move {
            let spans = Spans::begin(deliveries, &self.leg.post.destination);
            let (mut outgoing, mut unsent) = (Vec::with_capacity(deliveries.len()), Vec::new());
            for (place, delivery) in deliveries.iter().enumerate() {
                match spans.of(place, || self.prepared(delivery)) {
                    Ok(written) => outgoing.push((place, written)),
                    Err(settlement) => unsent.push((place, settlement)),
                }
                // Hundreds of them, with the user's own functions: others have their turn in between.
                consume_budget().await;
            }
            let mut is_open = vec![true; deliveries.len()];
            unsent.iter().for_each(|(place, _)| is_open[*place] = false);
            tell(unsent);
            let mut answers = self.leg.post.send_all(outgoing);
            while let Some(answered) = answers.recv().await {
                let settled = answered.into_iter().map(|(place, answer)| {
                    is_open[place] = false;
                    (place, spans.of(place, || self.judged(answer, &deliveries[place])))
                });
                tell(settled.collect());
            }
            let left = is_open.iter().enumerate().filter(|(_, is_open)| **is_open);
            tell(
                left.map(|(place, _)| (place, self.judged(Err(unanswered()), &deliveries[place]))).collect(),
            );
        })
    }
}

/// The spans of deliveries that go together, until each of them has ended.
pub(super) struct Spans(Vec<Span>);

impl Spans {
    pub(super) fn begin(deliveries: &[Arc<Delivery>], destination: &str) -> Self {
        let begin = |delivery: &Arc<Delivery>| {
            let span = span_of(delivery, destination);
            #[cfg(feature = "opentelemetry")]
            crate::link::link(&span, delivery.claimed.message.trail());
            span
        };
        Self(deliveries.iter().map(begin).collect())
    }

    /// Does something in the span of a delivery.
    pub(super) fn of<T>(&self, place: usize, run: impl FnOnce() -> T) -> T {
        match self.0.get(place) {
            Some(span) => span.in_scope(run),
            None => run(),
        }
    }
}

/// Runs a delivery in its span.
pub(super) fn relaying<'d>(
    settling: impl Future<Output = Settlement> + Send + 'd,
    delivery: &Delivery,
    destination: &str,
) -> BoxFuture<'d, Outcome> {
    let span = span_of(delivery, destination);
    let settling = settling.map(Outcome::Settle);
    #[cfg(feature = "opentelemetry")]
    let settling = crate::link::linked(settling, &span, delivery.claimed.message.trail());
    Box::pin(settling.instrument(span))
}

fn span_of(delivery: &Delivery, destination: &str) -> Span {
    let claimed = &delivery.claimed;
    tracing::info_span!(
        "postrider.relay",
        queue = %claimed.lease.queue(),
        message = %claimed.id(),
        destination,
        attempt = claimed.attempts.saturating_add(1),
        deliveries = claimed.deliveries,
        correlation = claimed.message.trail().correlation_id.as_deref(),
        traceparent = claimed.message.trail().traceparent.as_deref(),
    )
}

impl Relaying {
    async fn settle(&self, delivery: &Arc<Delivery>) -> Settlement {
        match self.prepared(delivery) {
            Ok(outgoing) => self.judged(self.leg.post.send(outgoing).await, delivery),
            Err(settlement) => settlement,
        }
    }

    /// What is to be sent, or how the delivery ends without that.
    fn prepared(&self, delivery: &Delivery) -> Result<Outgoing, Settlement> {
        let unsendable = undeclared(self.is_ordered, delivery);
        if let Some(settlement) = unsendable.or_else(|| claimed_too_often(self.max_deliveries, delivery)) {
            return Err(settlement);
        }
        match self.leg.written(delivery, &self.source) {
            Ok(Some(outgoing)) => Ok(outgoing),
            Ok(None) => Err(Settlement::Done),
            Err(failure) => Err(self.judge.settle(&failure, delivery)),
        }
    }

    /// How an answer ends a delivery.
    fn judged(&self, answer: Answer, delivery: &Delivery) -> Settlement {
        match answer {
            Ok(_) => Settlement::Done,
            // No fault of the message, which waits uncounted.
            Err(PublishError::Down { .. }) => Settlement::Release,
            Err(error) => self.judge.settle(&failed(error), delivery),
        }
    }
}

/// A queue that is not what its route says: nothing is sent until it is, since order would be lost.
pub(super) fn undeclared(is_ordered: Option<bool>, delivery: &Delivery) -> Option<Settlement> {
    let lease = &delivery.claimed.lease;
    let expected = is_ordered.filter(|is_ordered| *is_ordered != lease.turn().is_some())?;
    tracing::error!(
        name: "postrider.undeclared", queue = %lease.queue(), is_ordered = expected,
        "the queue is not declared as its route says: call `Relay::declare`, or give the route the queue's policy"
    );
    Some(Settlement::Snooze { after: UNDECLARED })
}

/// How long messages of such a queue wait.
const UNDECLARED: Duration = Duration::from_secs(10);

fn failed(error: PublishError) -> Failure {
    let next = match &error {
        PublishError::Retry { after: Some(after), .. } => Next::RetryAfter(*after),
        PublishError::Reject { .. } => Next::Reject,
        _ => Next::Retry,
    };
    let name = error.name();
    Failure::of_kind(next, name, error)
}

impl Leg {
    /// The message as it goes there; `None` when it does not. Written anew for each attempt: it costs little, and nothing is kept.
    pub(super) fn written(
        &self,
        delivery: &Delivery,
        source: &Arc<str>,
    ) -> Result<Option<Outgoing>, Failure> {
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
        let outgoing = Outgoing::write(
            &message,
            claimed.id(),
            claimed.staged_at,
            Arc::clone(source),
            address,
            self.format,
        )
        .map_err(|invalid| Failure::of_kind(Next::Undecodable, "InvalidMessage", invalid.to_string()))?;
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
