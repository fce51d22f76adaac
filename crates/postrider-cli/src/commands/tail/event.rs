//! Something that happened to a message.

use postrider::{
    EventType, MessageId, OrderingKey, QueueName, Reason, State, cloudevents::rfc3339, inspect::Entry,
};
use serde::Serialize;
use std::{cmp::Ordering, time::SystemTime};

/// For programs. Its keys are a promise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Event {
    /// When it happened, where that is known; otherwise when it was seen.
    at: String,
    event: What,
    queue: QueueName,
    id: MessageId,
    #[serde(rename = "type")]
    event_type: Option<EventType>,
    key: Option<OrderingKey>,
    deliveries: u32,
    attempts: u32,
    reason: Option<Reason>,
    error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    Staged,
    Leased,
    Waiting,
    Pending,
    Dead,
    Done,
    /// It is nowhere any more: delivered by a queue that keeps nothing, or removed.
    Gone,
}

impl What {
    pub(super) fn of(state: State) -> Self {
        match state {
            State::Leased => Self::Leased,
            State::Waiting => Self::Waiting,
            State::Pending => Self::Pending,
            State::Dead => Self::Dead,
            State::Done => Self::Done,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Leased => "leased",
            Self::Waiting => "waiting",
            Self::Pending => "pending",
            Self::Dead => "dead",
            Self::Done => "done",
            Self::Gone => "gone",
        }
    }
}

impl Event {
    /// `None` for a message without an identity, which no store has.
    pub(super) fn new(what: What, entry: &Entry, seen: SystemTime) -> Option<Self> {
        let at = match what {
            What::Staged => entry.staged_at,
            What::Dead | What::Done => entry.at,
            What::Leased | What::Waiting | What::Pending | What::Gone => seen,
        };
        let message = &entry.message;
        // Whatever has come of it since, it was staged without.
        let since = (what != What::Staged).then_some(entry);
        Some(Self {
            at: rfc3339::format(at),
            event: what,
            queue: message.queue().clone(),
            id: message.id()?,
            event_type: message.event_type().cloned(),
            key: message.key().cloned(),
            deliveries: since.map_or(0, |entry| entry.deliveries),
            attempts: since.map_or(0, |entry| entry.attempts),
            reason: since.and_then(|entry| entry.reason),
            error: since.and_then(|entry| entry.error.clone()),
        })
    }

    pub(super) fn what(&self) -> What {
        self.event
    }

    /// The order in which things happened.
    pub(super) fn earlier(one: &Self, other: &Self) -> Ordering {
        one.at.cmp(&other.at)
    }

    /// For people.
    pub(super) fn line(&self) -> String {
        let mut line = format!(
            "{} {:<7} {} {} {} {}",
            self.at,
            self.event.word(),
            self.queue,
            self.id,
            self.event_type.as_ref().map_or("-", EventType::as_str),
            self.key.as_ref().map_or("-", OrderingKey::as_str),
        );
        if self.attempts > 0 {
            line.push_str(&format!(" failures={}", self.attempts));
        }
        if let Some(reason) = self.reason {
            line.push_str(&format!(" {reason}"));
        }
        if let Some(error) = &self.error {
            line.push_str(&format!(": {error}"));
        }
        // Nothing that a message says may write to the terminal as it likes.
        line.replace(|c: char| c.is_control(), " ")
    }
}
