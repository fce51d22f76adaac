//! Recovery: a saga is what its log says.

use super::{Entry, Outcome, Plan, Refused, State, transition};

/// Where a saga stands, by its log. No entries: it is new.
///
/// An entry that is in the log twice counts once, so a log that was appended to without asking is read like one that was not.
///
/// # Errors
/// When the log was begun under another plan, or holds what cannot be: then nothing may be done for this saga until somebody has looked.
pub fn replay<'a>(plan: &Plan, log: impl IntoIterator<Item = &'a Entry>) -> Result<State, Unreadable> {
    let mut state = State::New;
    for (position, entry) in (1..).zip(log) {
        match transition(plan, &state, entry) {
            Ok(Outcome::Moved(next)) => state = next,
            Ok(Outcome::Repeated) => {}
            Err(refused) => return Err(Unreadable { position, refused }),
        }
    }
    Ok(state)
}

/// A log that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {position} of the saga's log cannot be: {refused}")]
pub struct Unreadable {
    /// The first entry that was refused, counted from 1.
    pub position: u64,
    /// Why.
    pub refused: Refused,
}
