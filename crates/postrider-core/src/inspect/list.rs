//! Messages as operators see them, page by page.

use crate::{EventType, Message, OrderingKey, QueueName, Reason, State};
use std::time::SystemTime;

/// Which messages to list.
#[derive(Debug, Clone)]
pub struct ListRequest {
    /// The queue.
    pub queue: QueueName,
    /// Where they are.
    pub room: Room,
    /// How many.
    pub limit: usize,
    /// Where the last page ended.
    pub after: Option<Cursor>,
    /// Only this key.
    pub key: Option<OrderingKey>,
    /// Only this type.
    pub event_type: Option<EventType>,
    /// Only dead letters of this reason.
    pub reason: Option<Reason>,
    /// Only those whose last error begins with this.
    pub error: Option<String>,
}

impl ListRequest {
    /// The first hundred messages of a room, oldest first.
    pub fn new(queue: QueueName, room: Room) -> Self {
        Self { queue, room, limit: 100, after: None, key: None, event_type: None, reason: None, error: None }
    }

    /// So many a page.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// The page after this one.
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

    /// Only those whose last error begins with this.
    #[must_use]
    pub fn with_error(mut self, error: impl Into<String>) -> Self {
        self.error = Some(error.into());
        self
    }
}

/// Where messages are. A message is in exactly one room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Room {
    /// May run now, leased or not. A retry may wait here too, if the store does not move it for so short a time.
    Ready,
    /// Waits: timers, and retries of unordered queues.
    Later,
    /// Dead letters.
    Dead,
    /// Kept after success.
    Archive,
}

/// Where a page ended. Opaque.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The time column of the room, where it is paged by time.
    pub at: Option<SystemTime>,
    /// The place in the line.
    pub place: i64,
}

/// One page.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The messages.
    pub entries: Vec<Entry>,
    /// Where to go on, when there may be more.
    pub next: Option<Cursor>,
}

/// A message as an operator sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The message; its id is set.
    pub message: Message,
    /// What state it is in.
    pub state: State,
    /// When it was staged.
    pub staged_at: SystemTime,
    /// When it is or was due; for a dead letter when it failed; for a kept one when it was delivered.
    pub at: SystemTime,
    /// How often it was claimed.
    pub deliveries: u32,
    /// How many failures were reported.
    pub attempts: u32,
    /// Why it is dead.
    pub reason: Option<Reason>,
    /// What failed last.
    pub error: Option<String>,
}
