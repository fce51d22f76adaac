//! The context of a handler: its message, attempt, deadline, cancellation, and the values that the runner shares.

#[cfg(feature = "testing")]
mod builder;

#[cfg(feature = "testing")]
pub use builder::ContextBuilder;

use postrider_core::{Hlc, Message, MessageBuilder, MessageId, QueueName, hlc::HybridClock, trace::Trace};
use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    fmt,
    sync::Arc,
    time::SystemTime,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The context that a handler receives with its event: the message, its delivery, and shared values. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    delivery: Arc<dyn HandledDelivery>,
    shared: Arc<Shared>,
    deadline: Option<Instant>,
}

/// One delivery of a message, as its handler sees it: a worker claimed the message, or a consumer received it.
pub(crate) trait HandledDelivery: Send + Sync {
    /// The message.
    fn message(&self) -> &Message;

    /// Its id.
    fn id(&self) -> MessageId;

    /// The queue that the message was claimed from, or the queue of the consumer's dead letters.
    fn queue(&self) -> &QueueName;

    /// The number of failed attempts before this delivery.
    fn failed_attempts(&self) -> u32;

    /// The number of deliveries, this one included.
    fn deliveries(&self) -> u32;

    /// When the message was staged or sent.
    fn staged_at(&self) -> SystemTime;

    /// When the message became due.
    fn due_at(&self) -> SystemTime;

    /// A token that is cancelled when this process no longer holds the message.
    fn cancellation(&self) -> CancellationToken;
}

/// Values shared by all handlers of a worker, by type.
#[derive(Default)]
pub(crate) struct Shared(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl Shared {
    pub(crate) fn put<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(value));
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("values", &self.0.len()).finish()
    }
}

/// A handler asked for a shared value that its worker does not have.
#[derive(Debug, thiserror::Error)]
#[error("no shared value of type {0}: register one on the worker with `share`")]
pub struct NotShared(&'static str);

impl Context {
    pub(crate) fn new(
        delivery: Arc<dyn HandledDelivery>,
        shared: Arc<Shared>,
        deadline: Option<Instant>,
    ) -> Self {
        Self { delivery, shared, deadline }
    }

    /// The message as it was staged.
    pub fn message(&self) -> &Message {
        self.delivery.message()
    }

    /// The message id.
    pub fn id(&self) -> MessageId {
        self.delivery.id()
    }

    /// The queue of the message.
    pub fn queue(&self) -> &QueueName {
        self.delivery.queue()
    }

    /// The attempt number: 1 for the first. Only reported failures count.
    pub fn attempt(&self) -> u32 {
        self.delivery.failed_attempts().saturating_add(1)
    }

    /// The number of claims of the message, this one included.
    pub fn deliveries(&self) -> u32 {
        self.delivery.deliveries()
    }

    /// When the message was staged, by the store's clock.
    pub fn staged_at(&self) -> SystemTime {
        self.delivery.staged_at()
    }

    /// When the message became due, by the store's clock.
    pub fn due_at(&self) -> SystemTime {
        self.delivery.due_at()
    }

    /// When the handler times out and counts as failed.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// A token that is cancelled when the worker no longer holds the message: its lease was lost, or the drain timeout of a
    /// stop was reached. Effects after that are wasted, and may happen a second time.
    pub fn cancellation(&self) -> CancellationToken {
        self.delivery.cancellation()
    }

    /// A value that was registered on the worker with `share`.
    ///
    /// # Errors
    /// When no value of that type was registered.
    pub fn shared<T: Send + Sync + 'static>(&self) -> Result<&T, NotShared> {
        self.shared.get().ok_or(NotShared(type_name::<T>()))
    }

    /// Marks a message as caused by the message of this handler: it continues the correlation id and the trace, and has
    /// this message's id as its causation id. With the feature `opentelemetry` the trace continues through the handler's
    /// own span, which is linked to it.
    ///
    /// Unless the message sets its own, it also inherits the tenant, and a reading of the hybrid logical clock that is later
    /// than the reading of this message: of the clock of the runner, or, if the runner has none, one that follows this
    /// message's reading.
    pub fn follow(&self, message: MessageBuilder) -> MessageBuilder {
        let id = self.id().to_string();
        let correlation = self.message().trail().correlation_id.clone();
        let mut message = message.correlation_id(correlation.unwrap_or_else(|| id.clone())).causation_id(id);
        if let Some(tenant) = self.message().tenant() {
            message = message.default_tenant(tenant.as_str());
        }
        if let Some(clock) = self.clock() {
            message = message.default_hlc(|| clock.tick(SystemTime::now()));
        }
        let Some(trace) = Trace::current().or_else(|| Trace::of_message(self.message())) else {
            return message;
        };
        let message = message.traceparent(trace.traceparent);
        match trace.tracestate {
            Some(tracestate) => message.tracestate(tracestate),
            None => message,
        }
    }

    /// The clock of the runner, after the reading of this message.
    fn clock(&self) -> Option<Arc<HybridClock>> {
        let received: Option<Hlc> = self.message().trail().hlc;
        match (self.shared.get::<Arc<HybridClock>>(), received) {
            (Some(clock), Some(received)) => {
                // A sender's clock that is far ahead does not move the runner's.
                clock.merge(received, SystemTime::now()).ok();
                Some(Arc::clone(clock))
            }
            (Some(clock), None) => Some(Arc::clone(clock)),
            (None, received) => received.map(|received| Arc::new(HybridClock::resume(Some(received)))),
        }
    }
}

impl fmt::Debug for Context {
    /// Omits the payload, which may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("queue", self.queue())
            .field("id", &self.id())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use postrider_core::TenantId;
    use std::time::Duration;

    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    fn follow(context: &Context, effect: MessageBuilder) -> Message {
        context.follow(effect).build().unwrap()
    }

    #[test]
    fn followed_message_inherits_the_tenant_and_a_later_reading() {
        let cause = HybridClock::resume(None).tick(SystemTime::now() + Duration::from_secs(60));
        let context = Context::builder(Message::builder("orders").tenant("acme").hlc(cause)).build().unwrap();
        let effect = follow(&context, Message::builder("invoices"));
        assert_eq!(effect.tenant().map(TenantId::as_str), Some("acme"));
        assert!(effect.trail().hlc > Some(cause), "{:?}", effect.trail().hlc);

        let own = HybridClock::resume(None).tick(SystemTime::now());
        let effect = follow(&context, Message::builder("invoices").tenant("own").hlc(own));
        assert_eq!(effect.tenant().map(TenantId::as_str), Some("own"));
        assert_eq!(effect.trail().hlc, Some(own));
    }

    #[test]
    fn followed_message_has_a_reading_of_the_runners_clock() {
        let clock = Arc::new(HybridClock::resume(None));
        let cause = HybridClock::resume(None).tick(SystemTime::now() + Duration::from_secs(60));
        let context =
            |message: MessageBuilder| Context::builder(message).share(Arc::clone(&clock)).build().unwrap();
        let first = follow(&context(Message::builder("orders").hlc(cause)), Message::builder("invoices"));
        assert_eq!(first.trail().hlc, clock.latest());
        assert!(first.trail().hlc > Some(cause));
        let next = follow(&context(Message::builder("orders")), Message::builder("invoices"));
        assert!(next.trail().hlc > first.trail().hlc, "the clock goes on");
    }

    #[test]
    fn followed_message_without_a_tenant_or_clock_has_none() {
        let context = Context::builder(Message::builder("orders")).build().unwrap();
        let effect = follow(&context, Message::builder("invoices"));
        assert_eq!((effect.tenant(), effect.trail().hlc), (None, None));
    }
}
