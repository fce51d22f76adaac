//! Builds contexts without a worker, for unit tests of handlers. With the feature `testing` only.

use super::{Context, HandledDelivery, Shared};
use crate::failure::Failure;
use postrider_core::{Codec, Event, IntoMessage, Invalid, Message, MessageId, QueueName};
use std::{future::Future, sync::Arc, time::SystemTime};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Builds a [`Context`], so that a test can call a handler without a worker and without a store.
///
/// ```
/// # use postrider_core::{Event, Json};
/// # use postrider_engine::{Context, Failure, worker::Next};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct OrderPlaced { order: u64 }
/// # impl Event for OrderPlaced {
/// #     const TYPE: &'static str = "order.placed";
/// #     const QUEUE: &'static str = "orders";
/// #     type Codec = Json;
/// # }
/// struct Warehouse { is_open: bool }
///
/// async fn ship(event: OrderPlaced, context: Context) -> Result<(), Failure> {
///     match context.shared::<Warehouse>()?.is_open {
///         true => Ok(()),
///         false if context.attempt() > 3 => Err(Failure::reject(format!("order {} is too late", event.order))),
///         false => Err("the warehouse is closed".into()),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let delivery = || Context::builder(&OrderPlaced { order: 17 }).share(Warehouse { is_open: false });
///
/// let failure = delivery().perform(ship).await.unwrap_err();
/// assert_eq!(failure.next(), Next::Retry);
/// let failure = delivery().attempt(4).perform(ship).await.unwrap_err();
/// assert_eq!(failure.next(), Next::Reject);
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct ContextBuilder {
    message: Result<Message, Invalid>,
    attempt: u32,
    deliveries: Option<u32>,
    staged_at: Option<SystemTime>,
    due_at: Option<SystemTime>,
    deadline: Option<Instant>,
    is_lost: bool,
    shared: Shared,
}

impl Context {
    /// Starts building the context of an event, a message or its builder.
    pub fn builder(message: impl IntoMessage) -> ContextBuilder {
        ContextBuilder {
            message: message.into_message(),
            attempt: 1,
            deliveries: None,
            staged_at: None,
            due_at: None,
            deadline: None,
            is_lost: false,
            shared: Shared::default(),
        }
    }
}

impl ContextBuilder {
    /// The attempt number; default 1.
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The number of claims; default the attempt number.
    pub fn deliveries(mut self, deliveries: u32) -> Self {
        self.deliveries = Some(deliveries);
        self
    }

    /// When the message was staged; default now.
    pub fn staged_at(mut self, staged_at: SystemTime) -> Self {
        self.staged_at = Some(staged_at);
        self
    }

    /// When the message became due; default when it was staged.
    pub fn due_at(mut self, due_at: SystemTime) -> Self {
        self.due_at = Some(due_at);
        self
    }

    /// The deadline that the handler sees. Nothing stops the handler: only a worker does.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// The lease is lost from the start: [`Context::cancellation`] is cancelled.
    pub fn lost(mut self) -> Self {
        self.is_lost = true;
        self
    }

    /// Shares a value, as [`WorkerBuilder::share`](crate::WorkerBuilder::share) does.
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.shared.put(value);
        self
    }

    /// Builds the context.
    ///
    /// # Errors
    /// When the message is invalid.
    pub fn build(self) -> Result<Context, Invalid> {
        let message = self.message?;
        let staged_at = self.staged_at.unwrap_or_else(SystemTime::now);
        let id = message.id().unwrap_or_else(|| MessageId::at(staged_at));
        let cancellation = CancellationToken::new();
        if self.is_lost {
            cancellation.cancel();
        }
        let delivery = BuiltDelivery {
            message: message.identified(id),
            id,
            failed_attempts: self.attempt.saturating_sub(1),
            deliveries: self.deliveries.unwrap_or(self.attempt),
            staged_at,
            due_at: self.due_at.unwrap_or(staged_at),
            cancellation,
        };
        Ok(Context::new(Arc::new(delivery), Arc::new(self.shared), self.deadline))
    }

    /// Calls a handler as a worker would: the event is encoded and decoded by its codec.
    ///
    /// # Errors
    /// The handler's failure. An invalid message and one that cannot be decoded are failures as well.
    pub async fn perform<E, F, R, G>(self, handler: F) -> Result<(), Failure>
    where
        E: Event,
        F: FnOnce(E, Context) -> R,
        R: Future<Output = Result<(), G>>,
        G: Into<Failure>,
    {
        let context = self.build().map_err(Failure::reject)?;
        let event = E::Codec::decode(context.message().payload()).map_err(Failure::undecodable)?;
        handler(event, context).await.map_err(Into::into)
    }
}

/// A delivery that no runner made.
struct BuiltDelivery {
    message: Message,
    id: MessageId,
    failed_attempts: u32,
    deliveries: u32,
    staged_at: SystemTime,
    due_at: SystemTime,
    cancellation: CancellationToken,
}

impl HandledDelivery for BuiltDelivery {
    fn message(&self) -> &Message {
        &self.message
    }

    fn id(&self) -> MessageId {
        self.id
    }

    fn queue(&self) -> &QueueName {
        self.message.queue()
    }

    fn failed_attempts(&self) -> u32 {
        self.failed_attempts
    }

    fn deliveries(&self) -> u32 {
        self.deliveries
    }

    fn staged_at(&self) -> SystemTime {
        self.staged_at
    }

    fn due_at(&self) -> SystemTime {
        self.due_at
    }

    fn cancellation(&self) -> CancellationToken {
        self.cancellation.clone()
    }
}
