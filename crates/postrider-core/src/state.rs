//! The life of a message, as one pure function.
//!
//! ```text
//!                      claimed           settled: done           pruned
//!  staged ─▶ pending ───────────▶ leased ──────────────▶ done ───────────────────▶ gone
//!             ▲ ▲ ▲                │ │ │
//!             │ │ └────────────────┘ │ │  settled: dead
//!             │ │   lease lapsed,    │ └──────────────▶ dead ───────────────────▶ gone
//!    due, or  │ │ settled: release   │                   │    pruned, discarded
//!        key  │ └────────────────────┼───────────────────┘
//!   released  │                      │      requeued
//!             │                      │
//!  staged ─▶ waiting ◀───────────────┘
//!  for later          settled: retry or
//!                    snooze, key parked
//! ```
//!
//! Pending and waiting messages, which are in nobody's hands, can also be discarded by an operator or, as timers,
//! cancelled by the application; either way they are gone.
//!
//! **Who is authoritative.** The store. It runs this table in SQL or in memory, by its own clock, and guards every arrow
//! that leaves `leased` with the lease's token. This function is what the stores are tested against, and what a reader
//! should learn first.
//!
//! **Some arrows are taken together.** A store that claims a lapsed lease, or a timer that has come due, takes two of them
//! in one statement: there is no reaper. A queue that keeps nothing prunes in the statement that settles.
//!
//! **What fails, and where it ends.** A worker that dies: its lease lapses, and the message is pending. A late worker: its
//! token no longer fits, nothing happens, and so no arrow is taken. A failure for good: dead, or, where the order of a key
//! must not be broken, waiting with its key until a hand releases it. Nothing leaves `dead` by itself but through
//! retention, and nothing that is done ever runs again.
//!
//! **Why it is not simpler.** `waiting` could be a pending message with a date. It is a state of its own because a store
//! must find what is due without walking past what is not, and because an operator asks which of the two it is.

use crate::Settlement;
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Where in its life a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Due, and in nobody's hands.
    Pending,
    /// In somebody's hands.
    Leased,
    /// Not due yet: a timer, a retry, or the head of a parked key.
    Waiting,
    /// Delivered, and kept for a while.
    Done,
    /// Failed for good.
    Dead,
}

impl State {
    /// Every state there is.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Leased, Self::Waiting, Self::Done, Self::Dead];

    /// Its name in tables, metrics and on screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Leased => "leased",
            Self::Waiting => "waiting",
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

/// What can happen to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Happening {
    /// The transaction that staged it committed.
    Staged(Ripeness),
    /// A timer of its name was staged again, and it took the later time.
    Extended(Ripeness),
    /// Its time has come.
    CameDue,
    /// Somebody took it, under a lease.
    Claimed,
    /// Its lease was extended.
    Renewed,
    /// Its lease ended without a word from its owner.
    LeaseLapsed,
    /// Its owner said how the delivery ended.
    Settled(Ending),
    /// Its owner said that the delivery failed, and its key is held until a hand releases it.
    Parked,
    /// An operator let its key run again.
    KeyReleased,
    /// An operator put it back.
    Requeued,
    /// An operator removed it.
    Discarded,
    /// The application cancelled it, as a timer.
    Cancelled,
    /// Nothing keeps it any longer.
    Pruned,
}

/// Whether a message is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ripeness {
    /// It is due.
    Now,
    /// It will be.
    Later,
}

/// How a delivery ended: a [`Settlement`] without its details.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// Delivered.
    Done,
    /// Failed, and to be tried again.
    Retry,
    /// Failed for good.
    Dead,
    /// Handed back.
    Release,
    /// Put off.
    Snooze,
}

impl From<&Settlement> for Ending {
    fn from(settlement: &Settlement) -> Self {
        match settlement {
            Settlement::Done | Settlement::Forward { .. } => Self::Done,
            Settlement::Retry { .. } => Self::Retry,
            Settlement::Dead { .. } => Self::Dead,
            Settlement::Release => Self::Release,
            Settlement::Snooze { .. } => Self::Snooze,
        }
    }
}

impl From<Ripeness> for State {
    fn from(ripeness: Ripeness) -> Self {
        match ripeness {
            Ripeness::Now => Self::Pending,
            Ripeness::Later => Self::Waiting,
        }
    }
}

impl Happening {
    /// Everything that can happen.
    pub const ALL: [Self; 19] = [
        Self::Staged(Ripeness::Now),
        Self::Staged(Ripeness::Later),
        Self::Extended(Ripeness::Now),
        Self::Extended(Ripeness::Later),
        Self::CameDue,
        Self::Claimed,
        Self::Renewed,
        Self::LeaseLapsed,
        Self::Settled(Ending::Done),
        Self::Settled(Ending::Retry),
        Self::Settled(Ending::Dead),
        Self::Settled(Ending::Release),
        Self::Settled(Ending::Snooze),
        Self::Parked,
        Self::KeyReleased,
        Self::Requeued,
        Self::Discarded,
        Self::Cancelled,
        Self::Pruned,
    ];

    /// Its name in errors.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Staged(Ripeness::Now) => "staged",
            Self::Staged(Ripeness::Later) => "staged for later",
            Self::Extended(Ripeness::Now) => "extended",
            Self::Extended(Ripeness::Later) => "extended for later",
            Self::CameDue => "come due",
            Self::Claimed => "claimed",
            Self::Renewed => "renewed",
            Self::LeaseLapsed => "freed by a lapsed lease",
            Self::Settled(Ending::Done) => "settled as done",
            Self::Settled(Ending::Retry) => "settled for a retry",
            Self::Settled(Ending::Dead) => "settled as dead",
            Self::Settled(Ending::Release) => "released",
            Self::Settled(Ending::Snooze) => "put off",
            Self::Parked => "parked",
            Self::KeyReleased => "freed with its key",
            Self::Requeued => "requeued",
            Self::Discarded => "discarded",
            Self::Cancelled => "cancelled",
            Self::Pruned => "pruned",
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where a message is after something happened to it. `None` is a message that is not known: not staged yet, or gone.
///
/// ```
/// # use postrider_core::state::{Ending, Happening, State, next};
/// assert_eq!(next(Some(State::Pending), Happening::Claimed), Ok(Some(State::Leased)));
/// assert_eq!(next(Some(State::Leased), Happening::Settled(Ending::Retry)), Ok(Some(State::Waiting)));
/// assert!(next(Some(State::Done), Happening::Requeued).is_err());
/// ```
///
/// # Errors
/// When it cannot happen to a message in this state.
pub fn next(state: Option<State>, happening: Happening) -> Result<Option<State>, IllegalTransition> {
    use Happening::*;
    use State::*;
    Ok(match (state, happening) {
        (None, Staged(ripeness)) | (Some(Pending | Waiting), Extended(ripeness)) => Some(ripeness.into()),
        (Some(Waiting), CameDue | KeyReleased) => Some(Pending),
        (Some(Pending), Claimed) | (Some(Leased), Renewed) => Some(Leased),
        (Some(Leased), LeaseLapsed | Settled(Ending::Release)) => Some(Pending),
        (Some(Leased), Settled(Ending::Retry | Ending::Snooze) | Parked) => Some(Waiting),
        (Some(Leased), Settled(Ending::Done)) => Some(Done),
        (Some(Leased), Settled(Ending::Dead)) => Some(Dead),
        (Some(Dead), Requeued) => Some(Pending),
        (Some(Pending | Waiting), Discarded | Cancelled) | (Some(Done | Dead), Discarded) => None,
        (Some(Done | Dead), Pruned) => None,
        _ => return Err(IllegalTransition { state, happening }),
    })
}

/// Something that cannot happen to a message in its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message that is {} cannot be {happening}", state.map_or("not known", State::as_str))]
pub struct IllegalTransition {
    state: Option<State>,
    happening: Happening,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Reason;
    use proptest::{prelude::*, sample::select};
    use std::{collections::HashSet, time::Duration};

    const STATES: [Option<State>; 6] = [
        None,
        Some(State::Pending),
        Some(State::Leased),
        Some(State::Waiting),
        Some(State::Done),
        Some(State::Dead),
    ];

    #[test]
    fn every_state_and_everything_that_can_happen_to_it() {
        let mut table = format!("{:24}", "to be");
        for state in STATES {
            table += &format!("{:9}", state.map_or("(none)", State::as_str));
        }
        for happening in Happening::ALL {
            table += &format!("\n{happening:24}");
            for state in STATES {
                let cell = match next(state, happening) {
                    Ok(Some(next)) => next.as_str(),
                    Ok(None) => "gone",
                    Err(_) => "-",
                };
                table += &format!("{cell:9}");
            }
        }
        let table = table.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
        insta::assert_snapshot!(table, @r#"
        to be                   (none)   pending  leased   waiting  done     dead
        staged                  pending  -        -        -        -        -
        staged for later        waiting  -        -        -        -        -
        extended                -        pending  -        pending  -        -
        extended for later      -        waiting  -        waiting  -        -
        come due                -        -        -        pending  -        -
        claimed                 -        leased   -        -        -        -
        renewed                 -        -        leased   -        -        -
        freed by a lapsed lease -        -        pending  -        -        -
        settled as done         -        -        done     -        -        -
        settled for a retry     -        -        waiting  -        -        -
        settled as dead         -        -        dead     -        -        -
        released                -        -        pending  -        -        -
        put off                 -        -        waiting  -        -        -
        parked                  -        -        waiting  -        -        -
        freed with its key      -        -        -        pending  -        -
        requeued                -        -        -        -        -        pending
        discarded               -        gone     -        gone     gone     gone
        cancelled               -        gone     -        gone     -        -
        pruned                  -        -        -        -        gone     gone
        "#);
    }

    #[test]
    fn everything_that_can_happen_is_listed_once() {
        let names: HashSet<_> = Happening::ALL.map(Happening::as_str).into();
        assert_eq!(names.len(), Happening::ALL.len());
        assert_eq!(STATES[1..], State::ALL.map(Some));
    }

    #[test]
    fn an_illegal_transition_names_both() {
        let error = next(Some(State::Done), Happening::Requeued).unwrap_err();
        assert_eq!(error.to_string(), "a message that is done cannot be requeued");
        let error = next(None, Happening::Claimed).unwrap_err();
        assert_eq!(error.to_string(), "a message that is not known cannot be claimed");
    }

    #[test]
    fn a_name_round_trips_and_an_unknown_one_is_refused() {
        for state in State::ALL {
            assert_eq!(state.to_string().parse(), Ok(state));
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
        assert_eq!("Dead".parse::<State>().unwrap_err().field(), "state");
    }

    #[test]
    fn a_settlement_has_its_ending() {
        let retry = Settlement::Retry { after: Duration::ZERO, error: None };
        let dead = Settlement::Dead { reason: Reason::Rejected, error: None };
        let snooze = Settlement::Snooze { after: Duration::ZERO };
        let endings =
            [Settlement::Done, retry, dead, Settlement::Release, snooze].map(|each| Ending::from(&each));
        assert_eq!(endings, [Ending::Done, Ending::Retry, Ending::Dead, Ending::Release, Ending::Snooze]);
    }

    proptest! {
        #[test]
        fn no_path_leads_out_of_done_or_dead_unasked(
            path in prop::collection::vec(select(&Happening::ALL[..]), 0..200),
        ) {
            let mut state = None;
            for happening in path {
                let before = state;
                let Ok(after) = next(before, happening) else { continue };
                match before {
                    Some(State::Done) => prop_assert!(matches!(happening, Happening::Discarded | Happening::Pruned)),
                    Some(State::Dead) => prop_assert!(matches!(
                        happening,
                        Happening::Requeued | Happening::Discarded | Happening::Pruned
                    )),
                    None => prop_assert!(matches!(happening, Happening::Staged(_))),
                    Some(State::Leased) => prop_assert!(after.is_some(), "nobody takes it out of a worker's hands"),
                    Some(State::Pending | State::Waiting) => {}
                }
                prop_assert!(after != Some(State::Leased) || matches!(happening, Happening::Claimed | Happening::Renewed));
                state = after;
            }
        }
    }

    #[test]
    fn every_state_can_be_reached_and_left_for_good() {
        let mut reached = HashSet::from([None]);
        while let Some(state) = reached.iter().copied().find_map(|state| {
            Happening::ALL
                .into_iter()
                .filter_map(|h| next(state, h).ok())
                .find(|next| !reached.contains(next))
        }) {
            reached.insert(state);
        }
        assert_eq!(reached, STATES.into());
        let mut ends = HashSet::from([None]);
        while let Some(state) = STATES.into_iter().find(|state| {
            !ends.contains(state)
                && Happening::ALL
                    .into_iter()
                    .filter_map(|h| next(*state, h).ok())
                    .any(|next| ends.contains(&next))
        }) {
            ends.insert(state);
        }
        assert_eq!(ends, STATES.into());
    }
}
