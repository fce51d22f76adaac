//! Recovery of a saga from its log.

use super::{LogEntry, Plan, SagaState, Transition, TransitionError, transition};

/// The state of a saga, from its log. An empty log is a new saga.
///
/// A duplicate entry counts once.
///
/// # Errors
/// When the log was started under another plan, or has an impossible entry: the saga then needs manual intervention.
pub fn replay<'a>(
    plan: &Plan,
    log: impl IntoIterator<Item = &'a LogEntry>,
) -> Result<SagaState, ReplayError> {
    let mut state = SagaState::New;
    for (position, entry) in (1..).zip(log) {
        match transition(plan, &state, entry) {
            Ok(Transition::Moved(next)) => state = next,
            Ok(Transition::Repeated) => {}
            Err(refused) => return Err(ReplayError { position, refused }),
        }
    }
    Ok(state)
}

/// A log with an impossible entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {position} of the saga log is impossible: {refused}")]
pub struct ReplayError {
    /// The first rejected entry, from 1.
    pub position: u64,
    /// The cause.
    pub refused: TransitionError,
}
