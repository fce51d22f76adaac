//! Bulk changes: the selected messages, and the progress of a change.

use super::{Cursor, StateFilter};
use crate::{EventType, OrderingKey, QueueName, Reason};
use std::time::SystemTime;

/// A filter over the messages of a queue in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The queue.
    pub queue: QueueName,
    /// The state.
    pub state: StateFilter,
    /// Only this key.
    pub key: Option<OrderingKey>,
    /// Only this type.
    pub event_type: Option<EventType>,
    /// Only dead letters of this reason.
    pub reason: Option<Reason>,
    /// Only messages whose last error begins with this.
    pub error: Option<String>,
    /// Only messages that entered the state at this time or later: a dead letter failed, a delivered message was delivered.
    pub since: Option<SystemTime>,
    /// Only messages that entered the state at this time or earlier.
    pub until: Option<SystemTime>,
}

impl Selection {
    /// All messages of a queue in a state.
    pub fn new(queue: QueueName, state: StateFilter) -> Self {
        Self {
            queue,
            state,
            key: None,
            event_type: None,
            reason: None,
            error: None,
            since: None,
            until: None,
        }
    }
}

/// The size of a selection at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectionSummary {
    /// The number of messages, without follow-ups.
    pub count: u64,
    /// The number of follow-ups. Bulk changes skip them, because the ledger must record each.
    pub follow_ups: u64,
    /// The end of the selection at that moment.
    pub fence: Fence,
}

/// The end of a selection at one moment. Messages that enter the state later are behind it, and so is a requeued message that fails
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The store's clock.
    pub at: SystemTime,
    /// The last selected position.
    pub position: i64,
}

/// A part of a selection that is changed in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The end of the previous chunk.
    pub after: Option<Cursor>,
    /// The end of the selection.
    pub up_to: Fence,
    /// The largest number of messages.
    pub limit: usize,
}

impl Chunk {
    /// The first chunk of a selection.
    pub fn first(up_to: Fence, limit: usize) -> Self {
        Self { after: None, up_to, limit }
    }
}

/// The result of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeReport {
    /// The number of messages in the chunk.
    pub looked_at: u64,
    /// The number of changed messages; the others were leased or already deleted.
    pub changed: u64,
    /// The end of the chunk, if more may follow.
    pub next: Option<Cursor>,
}

/// Dead letters with a queue, a reason and a kind of error in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadGroup {
    /// The queue.
    pub queue: QueueName,
    /// The reason.
    pub reason: Option<Reason>,
    /// The common prefix of their errors: see [`error_kind`].
    pub error: Option<String>,
    /// The number of dead letters.
    pub count: u64,
    /// The time of the first failure.
    pub oldest: SystemTime,
    /// The time of the last failure.
    pub newest: SystemTime,
}

/// The longest kind of an error, in characters.
pub const ERROR_KIND_CHARS: usize = 200;

/// The kind of an error: its first line up to the first `": "`, at most 200 characters.
pub fn error_kind(error: &str) -> &str {
    let line = error.split('\n').next().unwrap_or_default();
    let kind = line.split(": ").next().unwrap_or_default();
    kind.char_indices().nth(ERROR_KIND_CHARS).map_or(kind, |(end, _)| &kind[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_kind_is_the_text_before_the_first_colon() {
        for (error, kind) in [
            ("no such address: Elm Street 7", "no such address"),
            ("timeout\n  at send: 17", "timeout"),
            ("12:30 is too late", "12:30 is too late"),
            ("", ""),
        ] {
            assert_eq!(error_kind(error), kind);
        }
        assert_eq!(error_kind(&"ä".repeat(300)), "ä".repeat(200));
    }
}
