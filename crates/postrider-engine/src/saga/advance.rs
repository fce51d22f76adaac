//! Advancing a saga: the outcome of a call leads to the next call, in the transaction that ends it.
//!
//! The log is read under the saga's lock and replayed; the outcome of the call is an entry, and the resulting state determines
//! the next call. The entry, the settlement of the claim, the next call and the audit event commit together. A runner that
//! crashes before that has changed nothing, and the same call is made again under the same key.

use postrider_core::{
    Error, FollowUp, IntoMessage, Invalid, MessageId, TxBackend,
    saga::{self, CommandKind, LogEntry, Part, Plan, SagaState, StepKind, Transition, replay, transition},
};
use std::{collections::BTreeMap, fmt};

/// The plans of a runner, by name.
#[derive(Clone, Default)]
pub(super) struct Plans(BTreeMap<String, Plan>);

impl Plans {
    pub(super) fn declare(&mut self, plan: Plan) -> Result<(), Invalid> {
        let name = plan.name().to_owned();
        if self.0.insert(name.clone(), plan).is_some() {
            return Err(Invalid::rule(
                "plan",
                format!("{name:?} is given twice: give each plan a name of its own"),
            ));
        }
        Ok(())
    }

    pub(super) fn get(&self, name: &str) -> Option<&Plan> {
        self.0.get(name)
    }
}

impl fmt::Debug for Plans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// The outcome of a call of a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallEnd {
    /// It took effect.
    Done,
    /// It failed, and no attempt took effect.
    Failed,
    /// It was abandoned, and it is unknown whether it took effect.
    Abandoned,
}

/// Why a saga cannot advance.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdvanceError {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Unreadable(#[from] saga::ReplayError),
    #[error(transparent)]
    InvalidTransition(#[from] saga::TransitionError),
}

/// The state of a saga, by its log.
pub(super) struct LogState {
    pub(super) state: SagaState,
    entries: usize,
}

/// Reads the state of a saga. The transaction holds the saga's lock until it ends.
pub(super) async fn read_state<S: TxBackend>(
    store: &S,
    tx: &mut S::Tx,
    plan: &Plan,
    saga: MessageId,
) -> Result<LogState, AdvanceError> {
    let log = store.read_log(tx, saga).await?;
    Ok(LogState { state: replay(plan, &log)?, entries: log.len() })
}

/// Advances a saga by an entry: appends it to the log, and stages the next call. Returns the new state, or `None` if the entry
/// was known before.
pub(super) async fn advance<S: TxBackend>(
    store: &S,
    tx: &mut S::Tx,
    plan: &Plan,
    saga: MessageId,
    log_state: &LogState,
    entry: &LogEntry,
    before: &FollowUp,
) -> Result<Option<SagaState>, AdvanceError> {
    let Transition::Moved(state) = transition(plan, &log_state.state, entry)? else { return Ok(None) };
    if state.is_over() {
        store.forget_log(tx, saga).await?;
    } else {
        store.append_log(tx, saga, log_state.entries, entry).await?;
    }
    if let Some(command) = state.pending() {
        let next = plan.follow_up(saga, command, before).and_then(IntoMessage::into_message);
        store.stage_in(tx, &[next.map_err(Error::from)?]).await?;
    }
    Ok(Some(state))
}

/// The log entry of a call's outcome.
pub(super) fn entry_of(plan: &Plan, part: &Part, end: CallEnd, state: SagaState, error: &str) -> LogEntry {
    let (step, error) = (part.command.step, error.to_owned());
    let may_fail = plan.step(step).is_some_and(|step| *step.kind() != StepKind::Retryable);
    match (part.command.act, end) {
        (CommandKind::Do, CallEnd::Done) => LogEntry::Done { step },
        (CommandKind::Undo, CallEnd::Done) => LogEntry::Undone { step },
        // That it had no effect resolves the doubt, if there was one.
        (CommandKind::Do, CallEnd::Failed) if state == SagaState::InDoubt { step } => {
            LogEntry::Resolved { step, happened: false }
        }
        (CommandKind::Do, CallEnd::Failed) if may_fail => LogEntry::Failed { step, error },
        (CommandKind::Do, CallEnd::Abandoned) if may_fail => LogEntry::Unknown { step, error },
        (CommandKind::Do | CommandKind::Undo, CallEnd::Failed | CallEnd::Abandoned) => {
            LogEntry::Stuck { step, error }
        }
    }
}

/// Whether a failure of this call makes its saga compensate, instead of waiting for an operator.
pub(super) fn can_compensate(plan: &Plan, part: &Part) -> bool {
    let step = plan.step(part.command.step);
    part.command.act == CommandKind::Do && step.is_some_and(|step| *step.kind() != StepKind::Retryable)
}
