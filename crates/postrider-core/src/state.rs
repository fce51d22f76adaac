//! The life cycle of a message.
//!
//! ```text
//!                        claimed           settled: done           pruned
//!  staged ─▶ pending ────────────▶ leased ──────────────▶ done ───────────────────▶ deleted
//!             ▲ ▲ ▲                 │ │ │
//!             │ │ └─────────────────┘ │ │  settled: dead
//!             │ │   lease expired,    │ └──────────────▶ dead ───────────────────▶ deleted
//!    due, or  │ │  settled: release   │                   │    pruned, discarded
//!        key  │ └─────────────────────┼───────────────────┘
//!   released  │                       │      requeued
//!             │                       │
//!  staged ─▶ scheduled ◀──────────────┘
//!  with a due time       settled: retry or
//!                       snooze, key parked
//! ```
//!
//! An operator can also discard a pending or scheduled message, and the application can cancel a timer; both delete the message.
//!
//! **The store is authoritative.** It performs these transitions in SQL or in memory, by its own clock, and guards every transition
//! out of `leased` with the lease token. The store suite of the test kit replays random histories against a model of them.
//!
//! **Some transitions happen together.** A claim that takes a message with an expired lease, or a timer that has come due, makes two
//! of them in one statement: there is no reaper. A queue that keeps no delivered messages prunes in the statement that settles.
//!
//! **Failures.** A worker dies: its lease expires and the message is pending again. A worker settles late: its token no longer matches
//! and nothing changes. A message fails permanently: it is dead or, where the order of a key must hold, scheduled with its key parked
//! until an operator releases the key. Only retention and operators move a message out of `dead`, and nothing that is done runs again.
//!
//! **Why `scheduled` is a state.** It could be a pending message with a date. It is a state of its own because a store must find the
//! due messages without walking past the others, and because operators ask for the two counts separately.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// The state of a message in its life cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Due, and not leased.
    Pending,
    /// Claimed by a worker under a lease.
    Leased,
    /// Not due yet: a timer, a retry, or the head of a parked key.
    Scheduled,
    /// Delivered, and kept for the queue's retention time.
    Done,
    /// Failed permanently: a dead letter.
    Dead,
}

impl State {
    /// Every state there is.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Leased, Self::Scheduled, Self::Done, Self::Dead];

    /// Its name in tables, metrics and on screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Scheduled => "scheduled",
            Self::Done => "done",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for State {
    type Err = crate::Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            crate::Invalid::rule("state", format!("{text:?} is unknown; known are {known}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_name_round_trips_and_unknown_name_is_rejected() {
        for state in State::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!("Dead".parse::<State>().unwrap_err().field(), "state");
    }
}
