//! Finding messages across queues and states.

use crate::{
    ConsumerName, EventType, MessageId, OrderingKey, QueueName, State, SubjectId, TenantId, TimerName,
};
use std::time::SystemTime;

/// The property by which messages are found, in every queue and state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FindBy {
    /// The message id: the message and its copies per destination. Uses an index.
    Id(MessageId),
    /// Tenant and subject. Uses an index.
    Subject(Option<TenantId>, SubjectId),
    /// The ordering key. Scans all messages.
    Key(OrderingKey),
    /// The trace id: the 32 hexadecimal digits in the middle of a `traceparent`. Scans all messages.
    Trace(String),
}

/// A deduplication record: a consumer has admitted a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeduplicationRecord {
    /// The consumer.
    pub consumer: ConsumerName,
    /// The time of admission.
    pub admitted_at: SystemTime,
}

/// An active named timer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveTimer {
    /// The queue.
    pub queue: QueueName,
    /// Its name.
    pub name: TimerName,
    /// Its message.
    pub id: MessageId,
    /// The due time.
    pub due_at: SystemTime,
    /// The event type of its message.
    pub event_type: Option<EventType>,
    /// Scheduled; pending, when it is due; or leased, when it can no longer be cancelled.
    pub state: State,
}
