//! What is known of a message, wherever that is.

use crate::{
    ConsumerName, EventType, MessageId, OrderingKey, QueueName, State, SubjectId, TenantId, TimerName,
};
use std::time::SystemTime;

/// What messages are found by, in every queue and every room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clue {
    /// Their identity: the message, and what a fan-out made of it. By an index.
    Id(MessageId),
    /// Whom they are about, and whose that is. By an index.
    Subject(Option<TenantId>, SubjectId),
    /// Their key. Every message is looked at.
    Key(OrderingKey),
    /// The trace that they belong to: the 32 hexadecimal digits in the middle of a `traceparent`. Every message is looked at.
    Trace(String),
}

/// That a consumer has admitted a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxMark {
    /// Who.
    pub consumer: ConsumerName,
    /// When.
    pub admitted_at: SystemTime,
}

/// A named timer that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivingTimer {
    /// The queue.
    pub queue: QueueName,
    /// Its name.
    pub name: TimerName,
    /// Its message.
    pub id: MessageId,
    /// When it is or was due.
    pub due_at: SystemTime,
    /// What its message carries.
    pub event_type: Option<EventType>,
    /// Waiting; pending, when it is due; or leased, and can be cancelled no more.
    pub state: State,
}
