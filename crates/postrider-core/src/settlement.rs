//! The ways in which a delivery ends.

use crate::Message;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, sync::Arc, time::Duration};

/// How a delivery ends. Workers, relays and saga runners decide differently, and settle alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// Delivered.
    Done,
    /// Delivered, and the messages are staged in the same atomic step.
    Forward {
        /// The messages to stage. A message whose id its queue already has is not staged again.
        messages: Arc<[Message]>,
    },
    /// Failed, to be retried after a delay, by the store's clock.
    Retry {
        /// The delay.
        after: Duration,
        /// The error.
        error: Option<String>,
    },
    /// Failed permanently: a dead letter. Like a retry it counts as a failed attempt.
    Dead {
        /// The reason.
        reason: Reason,
        /// The error.
        error: Option<String>,
    },
    /// Released as if it had never been claimed.
    Release,
    /// Rescheduled as if it had never been claimed, and due again after a delay, by the store's clock. On a queue ordered by key its
    /// key waits with it.
    Snooze {
        /// The delay.
        after: Duration,
    },
}

impl Settlement {
    /// Whether the message was delivered.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Done | Self::Forward { .. })
    }

    /// The messages to stage in the same step.
    pub fn messages(&self) -> &[Message] {
        match self {
            Self::Forward { messages } => messages,
            _ => &[],
        }
    }
}

/// Why a message is a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// Its deliveries began more often than allowed: it may crash its worker.
    MaxDeliveries,
    /// Its retry strategy gave up.
    RetriesExhausted,
    /// Its handler or its destination rejected it.
    Rejected,
    /// Its payload cannot be decoded.
    Undecodable,
}

impl Reason {
    /// Every reason there is.
    pub const ALL: [Self; 4] =
        [Self::MaxDeliveries, Self::RetriesExhausted, Self::Rejected, Self::Undecodable];

    /// Its name in tables, metrics and on screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxDeliveries => "max_deliveries",
            Self::RetriesExhausted => "retries_exhausted",
            Self::Rejected => "rejected",
            Self::Undecodable => "undecodable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Reason {
    type Err = crate::Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            crate::Invalid::rule("reason", format!("{text:?} is unknown; known are {known}"))
        })
    }
}
