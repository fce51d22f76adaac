//! What operators have paused: work that waits although it is due.

use crate::{DestinationName, QueueName, inspect::Action};
use std::{fmt, time::SystemTime};

/// What can be paused.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pausable {
    /// Nothing of this queue is claimed, by anybody. Staging goes on.
    Queue(QueueName),
    /// Relays send nothing to the destination of this name. Its messages wait; those of other destinations do not.
    Destination(DestinationName),
}

impl Pausable {
    /// What kind of thing it is, in a word, as stores keep it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Queue(_) => "queue",
            Self::Destination(_) => "destination",
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Queue(name) => name.as_str(),
            Self::Destination(name) => name.as_str(),
        }
    }

    /// As a store kept it.
    pub fn stored(kind: &str, name: String) -> Self {
        match kind {
            "destination" => Self::Destination(DestinationName::stored(name)),
            _ => Self::Queue(QueueName::stored(name)),
        }
    }
}

impl fmt::Display for Pausable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// Something that is paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paused {
    /// What.
    pub what: Pausable,
    /// Since when, by the store's clock.
    pub since: SystemTime,
    /// By whom, and why.
    pub action: Action,
}
