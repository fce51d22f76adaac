//! What state a follow-up is in.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// What state a follow-up is in. It is never written down: where its message is tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Due, and nobody has it.
    Pending,
    /// In a runner's hands; or its lease has lapsed, and it will be in another's.
    InFlight,
    /// Its last attempt failed, and it waits for the next.
    Failed,
    /// Not before its time: it has no failure behind it, and waits because the resolver, or whoever staged it, said so.
    Scheduled,
    /// Kept after success.
    Succeeded,
    /// Given up, and a dead letter: it waits for a hand.
    Abandoned,
}

impl Status {
    /// Every status there is.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::InFlight, Self::Failed, Self::Scheduled, Self::Succeeded, Self::Abandoned];

    /// Its name in tables, metrics and on screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InFlight => "in_flight",
            Self::Failed => "failed",
            Self::Scheduled => "scheduled",
            Self::Succeeded => "succeeded",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether nothing more happens by itself.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Abandoned)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How many follow-ups there are in each status; every status is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCounts(BTreeMap<Status, u64>);

impl Default for StatusCounts {
    fn default() -> Self {
        Self(Status::ALL.into_iter().map(|status| (status, 0)).collect())
    }
}

impl StatusCounts {
    /// How many there are in one.
    pub fn of(&self, status: Status) -> u64 {
        self.0.get(&status).copied().unwrap_or_default()
    }

    /// Each status and its count.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (Status, u64)> + '_ {
        self.0.iter().map(|(status, count)| (*status, *count))
    }
}

impl Extend<(Status, u64)> for StatusCounts {
    /// Adds to what was counted.
    fn extend<I: IntoIterator<Item = (Status, u64)>>(&mut self, counted: I) {
        for (status, count) in counted {
            *self.0.entry(status).or_default() += count;
        }
    }
}
