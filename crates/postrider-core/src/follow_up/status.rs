//! The status of a follow-up.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt};

/// The status of a follow-up. It is not stored: it follows from the state of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FollowUpStatus {
    /// Due and not leased.
    Pending,
    /// Leased by a runner, or its lease has expired and another runner will claim it.
    InFlight,
    /// Its last attempt failed, and it waits for the retry.
    Failed,
    /// Scheduled for later without a failure, by the resolver or by its producer.
    Scheduled,
    /// Succeeded, and kept.
    Succeeded,
    /// Abandoned: a dead letter that needs manual intervention.
    Abandoned,
}

impl FollowUpStatus {
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

    /// Whether the status is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Abandoned)
    }
}

impl fmt::Display for FollowUpStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The number of follow-ups in each status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCounts(BTreeMap<FollowUpStatus, u64>);

impl Default for StatusCounts {
    fn default() -> Self {
        Self(FollowUpStatus::ALL.into_iter().map(|status| (status, 0)).collect())
    }
}

impl StatusCounts {
    /// The number in one status.
    pub fn of(&self, status: FollowUpStatus) -> u64 {
        self.0.get(&status).copied().unwrap_or_default()
    }

    /// Each status and its count.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (FollowUpStatus, u64)> + '_ {
        self.0.iter().map(|(status, count)| (*status, *count))
    }
}

impl Extend<(FollowUpStatus, u64)> for StatusCounts {
    /// Adds counts.
    fn extend<I: IntoIterator<Item = (FollowUpStatus, u64)>>(&mut self, counted: I) {
        for (status, count) in counted {
            *self.0.entry(status).or_default() += count;
        }
    }
}
