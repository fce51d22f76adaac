//! Delivering to a handler: which one, its timeout, and the settlement after a failure.

use super::{
    Context, Failure,
    handler::{Handle, HandlerOutcome},
    queue::OnUnknownType,
};
use crate::{
    context::{HandledDelivery, Shared},
    delivery_loop::{BatchDeliver, Deliver, Delivery, Outcome},
    failure::Next,
    failure_policy::{FailurePolicy, settle_max_deliveries},
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_core::{Message, Settlement};
use std::{any::Any, collections::BTreeMap, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};
use tracing::Instrument;

/// The handlers of a queue.
pub(super) struct Handlers {
    pub(super) handlers: BTreeMap<&'static str, Arc<dyn Handle>>,
    pub(super) fallback: Option<Arc<dyn Handle>>,
    pub(super) unknown: OnUnknownType,
    pub(super) timeout: Duration,
    pub(super) failure_policy: FailurePolicy,
    pub(super) max_deliveries: Option<u32>,
    pub(super) shared: Arc<Shared>,
    #[cfg(feature = "testing")]
    pub(super) fault_slot: super::fault_injection::FaultSlot,
}

impl Deliver for Handlers {
    fn deliver<'d>(&'d self, delivery: &'d Arc<Delivery>) -> BoxFuture<'d, Outcome> {
        let claimed = &delivery.claimed;
        if let Some(dead) = settle_max_deliveries(self.max_deliveries, delivery) {
            return ready(Outcome::Settle(dead));
        }
        let Some(handler) = self.handler_of(&claimed.message) else {
            return ready(Outcome::Settle(self.settle_unknown(delivery)));
        };
        let (span, running) = (span_of(delivery), self.run(handler.as_ref(), delivery));
        #[cfg(feature = "opentelemetry")]
        let running = crate::trace_link::run_linked(running, &span, claimed.message.trail());
        Box::pin(running.instrument(span))
    }

    fn settles_itself(&self, delivery: &Delivery) -> bool {
        self.handler_of(&delivery.claimed.message).is_some_and(|handler| handler.settles_itself())
    }

    fn keeps_lease_when_cancelled(&self) -> bool {
        false
    }

    fn as_batch(&self) -> Option<&dyn BatchDeliver> {
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
        message_id = %claimed.id(),
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
        typed.or(self.fallback.as_ref())
    }

    async fn run(&self, handler: &dyn Handle, delivery: &Arc<Delivery>) -> Outcome {
        let deadline = Instant::now() + self.timeout;
        let handled: Arc<dyn HandledDelivery> = Arc::clone(delivery) as _;
        let context = Context::new(handled, Arc::clone(&self.shared), Some(deadline));
        // A handler may panic before it returns its future, and while that runs. Its shared state is its own
        // responsibility.
        let running = AssertUnwindSafe(async {
            #[cfg(feature = "testing")]
            if let Some(failure) = self.fault_slot.fault_for(&context) {
                return HandlerOutcome::Failed(failure);
            }
            handler.handle(context, &delivery.claimed.lease).await
        });
        let running = running.catch_unwind();
        let failure = match timeout_at(deadline, running).await {
            Ok(Ok(HandlerOutcome::Done)) => return Outcome::Settle(Settlement::Done),
            Ok(Ok(HandlerOutcome::Committed)) => return Outcome::Committed(Settlement::Done),
            Ok(Ok(HandlerOutcome::Lost)) => return Outcome::Lost,
            Ok(Ok(HandlerOutcome::Failed(failure))) => failure,
            Ok(Err(panic)) => Failure::of_kind(Next::Retry, "Panic", panic_text(panic.as_ref())),
            Err(_) => {
                let text = format!("the handler exceeded its timeout of {:?}", self.timeout);
                Failure::of_kind(Next::Retry, "Timeout", text)
            }
        };
        Outcome::Settle(self.failure_policy.settle(&failure, delivery))
    }

    fn settle_unknown(&self, delivery: &Delivery) -> Settlement {
        let of_type = match delivery.claimed.message.event_type() {
            Some(event_type) => format!("no handler for events of type {event_type}"),
            None => "no handler for messages without a type".to_owned(),
        };
        let failure = |next| Failure::of_kind(next, "UnknownType", of_type);
        match self.unknown {
            OnUnknownType::Ignore => Settlement::Done,
            OnUnknownType::Reject => self.failure_policy.settle(&failure(Next::Reject), delivery),
            OnUnknownType::Retry => self.failure_policy.settle(&failure(Next::Retry), delivery),
        }
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no panic message")
        .to_owned()
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("types", &self.handlers.keys()).finish_non_exhaustive()
    }
}
