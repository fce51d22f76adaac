//! How a delivery ends.

use crate::Message;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr, sync::Arc, time::Duration};

/// How a delivery ends. A worker, a relay and a saga differ in what leads here, and in nothing after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It was delivered.
    Done,
    /// It was delivered, and these messages are staged in the same step: all of that happens, or nothing.
    Forward {
        /// What is staged. An identity that its queue knows already is not staged again.
        messages: Arc<[Message]>,
    },
    /// It failed, and is to be tried again after a while, by the store's clock.
    Retry {
        /// How long to wait.
        after: Duration,
        /// What failed.
        error: Option<String>,
    },
    /// It failed for good. Like a retry, it counts as a failed attempt.
    Dead {
        /// Why it is not tried again.
        reason: Reason,
        /// What failed.
        error: Option<String>,
    },
    /// It is handed back as if it had never been claimed.
    Release,
    /// It is put off as if it had never been claimed, and comes again after a while, by the store's clock. On a queue ordered
    /// by key its key waits with it.
    Snooze {
        /// How long to wait.
        after: Duration,
    },
}

impl Settlement {
    /// Whether the message was delivered.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Done | Self::Forward { .. })
    }

    /// What is to be staged in the same step.
    pub fn messages(&self) -> &[Message] {
        match self {
            Self::Forward { messages } => messages,
            _ => &[],
        }
    }
}

/// Why a message is not tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It was claimed more often than allowed: it may kill whoever takes it.
    MaxDeliveries,
    /// Its retry strategy gave up.
    RetriesExhausted,
    /// Its handler or its destination refused it.
    Rejected,
    /// Its payload cannot be read.
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
