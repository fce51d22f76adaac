//! Paused queues and destinations.

use crate::{DestinationName, QueueName, inspect::Action};
use std::{fmt, time::SystemTime};

/// A queue or a destination that an operator can pause.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pausable {
    /// A queue: no process claims from it. Staging continues.
    Queue(QueueName),
    /// A destination: no relay sends to it. Its messages wait; those of other destinations do not.
    Destination(DestinationName),
}

impl Pausable {
    /// `queue` or `destination`, as stores keep it.
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

    /// From the form that stores keep.
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

/// A pause, with its operator and reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PauseRecord {
    /// The paused queue or destination.
    pub what: Pausable,
    /// The start of the pause, by the store's clock.
    pub since: SystemTime,
    /// The operator and the reason.
    pub action: Action,
}
