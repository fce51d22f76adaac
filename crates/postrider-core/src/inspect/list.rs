//! Paged lists of messages.

use crate::{EventType, Message, OrderingKey, QueueName, Reason, State};
use std::time::SystemTime;

/// A request for a page of messages.
#[derive(Debug, Clone)]
pub struct ListRequest {
    /// The queue.
    pub queue: QueueName,
    /// The state.
    pub state: StateFilter,
    /// The page size.
    pub limit: usize,
    /// The end of the previous page.
    pub after: Option<Cursor>,
    /// Only this key.
    pub key: Option<OrderingKey>,
    /// Only this type.
    pub event_type: Option<EventType>,
    /// Only dead letters of this reason.
    pub reason: Option<Reason>,
    /// Only messages whose last error begins with this.
    pub error: Option<String>,
}

impl ListRequest {
    /// The first hundred messages in a state, oldest first.
    pub fn new(queue: QueueName, state: StateFilter) -> Self {
        Self { queue, state, limit: 100, after: None, key: None, event_type: None, reason: None, error: None }
    }

    /// Sets the page size.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Continues after a cursor.
    #[must_use]
    pub fn after(mut self, cursor: Option<Cursor>) -> Self {
        self.after = cursor;
        self
    }

    /// Only this key.
    #[must_use]
    pub fn with_key(mut self, key: OrderingKey) -> Self {
        self.key = Some(key);
        self
    }

    /// Only this type.
    #[must_use]
    pub fn with_event_type(mut self, event_type: EventType) -> Self {
        self.event_type = Some(event_type);
        self
    }

    /// Only dead letters of this reason.
    #[must_use]
    pub fn with_reason(mut self, reason: Reason) -> Self {
        self.reason = Some(reason);
        self
    }

    /// Only messages whose last error begins with this.
    #[must_use]
    pub fn with_error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }
}

/// A group of states, as operators list them. A message is in exactly one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateFilter {
    /// Pending or leased. A retry with a short delay may be listed here, too.
    Ready,
    /// Scheduled: timers, and retries of unordered queues.
    Scheduled,
    /// Dead letters.
    Dead,
    /// Delivered and kept.
    Done,
}

/// The end of a page. Opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The time of the last row, where the list is sorted by time.
    pub at: Option<SystemTime>,
    /// The position of the last row.
    pub position: i64,
}

/// One page.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The messages.
    pub entries: Vec<MessageRow>,
    /// The cursor of the next page, if there may be one.
    pub next: Option<Cursor>,
}

/// A message with its state and counters.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageRow {
    /// The message; its id is set.
    pub message: Message,
    /// The state.
    pub state: State,
    /// The time of staging.
    pub staged_at: SystemTime,
    /// The due time; for a dead letter the time of its failure; for a delivered message the time of its delivery.
    pub at: SystemTime,
    /// The number of claims.
    pub deliveries: u32,
    /// The number of failed attempts.
    pub attempts: u32,
    /// The reason of a dead letter.
    pub reason: Option<Reason>,
    /// The last error.
    pub error: Option<String>,
}
