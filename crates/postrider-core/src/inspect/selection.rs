//! Many messages at once: which are meant, and how far a change of them has come.

use super::{Cursor, Room};
use crate::{EventType, OrderingKey, QueueName, Reason};
use std::time::SystemTime;

/// The messages of a room that have something in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The queue.
    pub queue: QueueName,
    /// Where they are.
    pub room: Room,
    /// Only this key.
    pub key: Option<OrderingKey>,
    /// Only this type.
    pub event_type: Option<EventType>,
    /// Only dead letters of this reason.
    pub reason: Option<Reason>,
    /// Only those whose last error begins with this.
    pub error: Option<String>,
    /// Only those whose time in the room is not before this: for a dead letter when it failed, for a kept one when it was delivered.
    pub since: Option<SystemTime>,
    /// Only those whose time in the room is not after this.
    pub until: Option<SystemTime>,
}

impl Selection {
    /// Everything in a room.
    pub fn new(queue: QueueName, room: Room) -> Self {
        Self { queue, room, key: None, event_type: None, reason: None, error: None, since: None, until: None }
    }
}

/// What a selection holds at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selected {
    /// How many messages that are no follow-ups.
    pub count: u64,
    /// How many follow-ups: these are never changed by selection, since their ledger has to be told.
    pub follow_ups: u64,
    /// Where the selection ended then.
    pub fence: Fence,
}

/// The end of a selection at one moment. What comes into the room later is behind it, and so is a message that was put back and failed
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fence {
    /// The store's clock.
    pub at: SystemTime,
    /// The last place that was selected.
    pub place: i64,
}

/// A part of a selection, which is changed in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Where the last one ended.
    pub after: Option<Cursor>,
    /// Where the selection ends.
    pub up_to: Fence,
    /// How many messages at the most.
    pub limit: usize,
}

impl Chunk {
    /// The first of a selection.
    pub fn first(up_to: Fence, limit: usize) -> Self {
        Self { after: None, up_to, limit }
    }
}

/// What became of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// How many messages it had.
    pub looked_at: u64,
    /// How many of them were changed: the others were in somebody's hands, or had gone.
    pub changed: u64,
    /// Where to go on, when there may be more.
    pub next: Option<Cursor>,
}

/// Dead letters with a queue, a reason and a kind of error in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadGroup {
    /// The queue.
    pub queue: QueueName,
    /// Why they are dead.
    pub reason: Option<Reason>,
    /// What their errors begin with: see [`error_kind`].
    pub error: Option<String>,
    /// How many they are.
    pub count: u64,
    /// When the first of them failed.
    pub oldest: SystemTime,
    /// When the last of them failed.
    pub newest: SystemTime,
}

/// How long the kind of an error may be, in characters.
pub const ERROR_KIND_CHARS: usize = 200;

/// What errors of one kind have in common: what stands before the first `": "`, in the first line, up to 200 characters of it.
pub fn error_kind(error: &str) -> &str {
    let line = error.split('\n').next().unwrap_or_default();
    let kind = line.split(": ").next().unwrap_or_default();
    kind.char_indices().nth(ERROR_KIND_CHARS).map_or(kind, |(end, _)| &kind[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_error_is_what_comes_before_its_details() {
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
