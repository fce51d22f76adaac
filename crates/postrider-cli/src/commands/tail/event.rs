//! An event in the life of a message.

use postrider::{
    EventType, MessageId, OrderingKey, QueueName, Reason, State, cloudevents::rfc3339, inspect::MessageRow,
};
use serde::Serialize;
use std::{cmp::Ordering, time::SystemTime};

/// The event as JSON. Its keys are stable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Event {
    /// When the event happened, when that is known; otherwise when it was observed.
    at: String,
    event: EventKind,
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
pub(crate) enum EventKind {
    Staged,
    Leased,
    Scheduled,
    Pending,
    Dead,
    Done,
    /// The message left the queue: delivered without keep_for, or discarded
    Gone,
}

impl EventKind {
    pub(super) fn of(state: State) -> Self {
        match state {
            State::Leased => Self::Leased,
            State::Scheduled => Self::Scheduled,
            State::Pending => Self::Pending,
            State::Dead => Self::Dead,
            State::Done => Self::Done,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Leased => "leased",
            Self::Scheduled => "scheduled",
            Self::Pending => "pending",
            Self::Dead => "dead",
            Self::Done => "done",
            Self::Gone => "gone",
        }
    }
}

impl Event {
    /// `None` for a message without an id, which no store holds.
    pub(super) fn new(kind: EventKind, entry: &MessageRow, observed_at: SystemTime) -> Option<Self> {
        let at = match kind {
            EventKind::Staged => entry.staged_at,
            EventKind::Dead | EventKind::Done => entry.at,
            EventKind::Leased | EventKind::Scheduled | EventKind::Pending | EventKind::Gone => observed_at,
        };
        let message = &entry.message;
        // A message has no deliveries and no error when it is staged, whatever happened since.
        let since = (kind != EventKind::Staged).then_some(entry);
        Some(Self {
            at: rfc3339::format(at),
            event: kind,
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

    pub(super) fn kind(&self) -> EventKind {
        self.event
    }

    /// The order of time.
    pub(super) fn by_time(one: &Self, other: &Self) -> Ordering {
        one.at.cmp(&other.at)
    }

    /// The event in one line.
    pub(super) fn line(&self) -> String {
        let mut line = format!(
            "{} {:<9} {} {} {} {}",
            self.at,
            self.event.name(),
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
        // Text of a message must not control the terminal.
        line.replace(|c: char| c.is_control(), " ")
    }
}
