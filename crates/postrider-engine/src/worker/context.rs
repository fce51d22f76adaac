//! What a handler is told besides its event.

use crate::carry::Delivery;
use postrider_core::{Lease, Message, MessageBuilder, MessageId, QueueName, trace::Trace};
use std::{
    any::{Any, TypeId, type_name},
    collections::HashMap,
    fmt,
    sync::Arc,
    time::SystemTime,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What a handler is told besides its event. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    delivery: Arc<Delivery>,
    shared: Arc<Shared>,
    deadline: Option<Instant>,
}

/// What all handlers of a worker share, by its type.
#[derive(Default)]
pub(crate) struct Shared(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl Shared {
    pub(crate) fn put<T: Send + Sync + 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(value));
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("values", &self.0.len()).finish()
    }
}

/// A handler asked for a value that nobody gave to its worker.
#[derive(Debug, thiserror::Error)]
#[error("no {0} is shared: give one to the worker with `share`")]
pub struct NotShared(&'static str);

impl Context {
    pub(crate) fn new(delivery: Arc<Delivery>, shared: Arc<Shared>, deadline: Option<Instant>) -> Self {
        Self { delivery, shared, deadline }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.delivery.claimed.lease
    }

    /// The message as it was staged.
    pub fn message(&self) -> &Message {
        &self.delivery.claimed.message
    }

    /// Its identity.
    pub fn id(&self) -> MessageId {
        self.delivery.claimed.id()
    }

    /// Its queue.
    pub fn queue(&self) -> &QueueName {
        self.delivery.claimed.lease.queue()
    }

    /// Which attempt this is: 1 for the first. Only failures that were reported count.
    pub fn attempt(&self) -> u32 {
        self.delivery.claimed.attempts.saturating_add(1)
    }

    /// How often the message was claimed, this time included.
    pub fn deliveries(&self) -> u32 {
        self.delivery.claimed.deliveries
    }

    /// When it was staged, by the store's clock.
    pub fn staged_at(&self) -> SystemTime {
        self.delivery.claimed.staged_at
    }

    /// When it became due, by the store's clock.
    pub fn due_at(&self) -> SystemTime {
        self.delivery.claimed.due_at
    }

    /// When the handler is stopped and counted as failed.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Is cancelled when the message is no longer ours: its lease was lost, or the worker stops and time is up. What the
    /// handler does after that is done in vain, and perhaps a second time.
    pub fn cancellation(&self) -> CancellationToken {
        self.delivery.cancellation()
    }

    /// What was given to the worker with `share`.
    ///
    /// # Errors
    /// When nothing of that type was.
    pub fn shared<T: Send + Sync + 'static>(&self) -> Result<&T, NotShared> {
        let value = self.shared.0.get(&TypeId::of::<T>()).and_then(|value| value.downcast_ref());
        value.ok_or(NotShared(type_name::<T>()))
    }

    /// Marks what this handler stages as caused by the message in hand: its correlation and its trace go on, and its id is the
    /// cause. With the feature `opentelemetry` the trace goes on through the handler's own span, which is linked to it.
    pub fn follow(&self, message: MessageBuilder) -> MessageBuilder {
        let id = self.id().to_string();
        let correlation = self.message().trail().correlation_id.clone();
        let message = message.correlation_id(correlation.unwrap_or_else(|| id.clone())).causation_id(id);
        let Some(trace) = Trace::current().or_else(|| Trace::of_message(self.message())) else {
            return message;
        };
        let message = message.traceparent(trace.traceparent);
        match trace.tracestate {
            Some(tracestate) => message.tracestate(tracestate),
            None => message,
        }
    }
}

impl fmt::Debug for Context {
    /// Shows no payload: it may carry personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("queue", self.queue())
            .field("id", &self.id())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
