//! Delivering to a handler: which one, for how long, and what its failure means.

use super::{
    Context, Failure,
    context::Shared,
    handler::{Handle, Handled},
    queue::Unknown,
};
use crate::{
    carry::{Deliver, Delivery, Outcome, Together},
    failure::Next,
    judge::{Judge, claimed_too_often},
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_core::{Message, Settlement};
use std::{any::Any, collections::BTreeMap, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

/// The handlers of a queue.
pub(super) struct Handlers {
    pub(super) handlers: BTreeMap<&'static str, Arc<dyn Handle>>,
    pub(super) otherwise: Option<Arc<dyn Handle>>,
    pub(super) unknown: Unknown,
    pub(super) timeout: Duration,
    pub(super) judge: Judge,
    pub(super) max_deliveries: Option<u32>,
    pub(super) shared: Arc<Shared>,
    #[cfg(feature = "testing")]
    pub(super) rehearsing: super::rehearsal::Rehearsing,
}

impl Deliver for Handlers {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        let claimed = &delivery.claimed;
        if let Some(dead) = claimed_too_often(self.max_deliveries, delivery) {
            return ready(Outcome::Settle(dead));
        }
        let Some(handler) = self.handler_of(&claimed.message) else {
            return ready(Outcome::Settle(self.settle_unknown(delivery)));
        };
        let (span, running) = (span_of(delivery), self.run(handler.as_ref(), delivery));
        #[cfg(feature = "opentelemetry")]
        let running = crate::link::linked(running, &span, claimed.message.trail());
        Box::pin(running.instrument(span))
    }

    fn commits(&self, delivery: &Delivery) -> bool {
        self.handler_of(&delivery.claimed.message).is_some_and(|handler| handler.commits())
    }

    fn leaves(&self) -> bool {
        false
    }

    fn together(&self) -> Option<&dyn Together> {
        None
    }
}

fn ready<'d>(outcome: Outcome) -> BoxFuture<'d, Outcome> {
    Box::pin(std::future::ready(outcome))
}

fn span_of(delivery: &Delivery) -> tracing::Span {
    let claimed = &delivery.claimed;
    let message = &claimed.message;
    tracing::info_span!(
        "postrider.handle",
        queue = %claimed.lease.queue(),
        message = %claimed.id(),
        r#type = message.event_type().map(postrider_core::EventType::as_str),
        attempt = claimed.attempts.saturating_add(1),
        deliveries = claimed.deliveries,
        correlation = message.trail().correlation_id.as_deref(),
        traceparent = message.trail().traceparent.as_deref(),
    )
}

impl Handlers {
    fn handler_of(&self, message: &Message) -> Option<&Arc<dyn Handle>> {
        let typed = message.event_type().and_then(|event_type| self.handlers.get(event_type.as_str()));
        typed.or(self.otherwise.as_ref())
    }

    async fn run(&self, handler: &dyn Handle, delivery: &Arc<Delivery>) -> Outcome {
        let deadline = Instant::now() + self.timeout;
        let context = Context::new(Arc::clone(delivery), Arc::clone(&self.shared), Some(deadline));
        // A handler may panic before it gives its future, and while that runs. What it shares is its own affair.
        let running = AssertUnwindSafe(async {
            #[cfg(feature = "testing")]
            if let Some(failure) = self.rehearsing.strike(&context) {
                return Handled::Failed(failure);
            }
            handler.handle(context).await
        });
        let running = running.catch_unwind();
        let failure = match timeout_at(deadline, running).await {
            Ok(Ok(Handled::Done)) => return Outcome::Settle(Settlement::Done),
            Ok(Ok(Handled::Committed)) => return Outcome::Committed(Settlement::Done),
            Ok(Ok(Handled::Lost)) => return Outcome::Lost,
            Ok(Ok(Handled::Failed(failure))) => failure,
            Ok(Err(panic)) => Failure::of_kind(Next::Retry, "Panic", panic_text(panic.as_ref())),
            Err(_) => {
                let text = format!("the handler took longer than {:?}", self.timeout);
                Failure::of_kind(Next::Retry, "Timeout", text)
            }
        };
        Outcome::Settle(self.judge.settle(&failure, delivery))
    }

    fn settle_unknown(&self, delivery: &Delivery) -> Settlement {
        let of_type = match delivery.claimed.message.event_type() {
            Some(event_type) => format!("no handler is for events of the type {event_type}"),
            None => "no handler is for messages without a type".to_owned(),
        };
        let failure = |next| Failure::of_kind(next, "UnknownType", of_type);
        match self.unknown {
            Unknown::Ignore => Settlement::Done,
            Unknown::Reject => self.judge.settle(&failure(Next::Reject), delivery),
            Unknown::Retry => self.judge.settle(&failure(Next::Retry), delivery),
        }
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it did not say why")
        .to_owned()
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("types", &self.handlers.keys()).finish_non_exhaustive()
    }
}
