//! Sagas under way: what became of a call leads to the next one, in the transaction in which it ends.
//!
//! The log is read under the saga's lock and folded; what became of the call is an entry, and the state that it leads to says which call
//! comes next. The entry, the end of the claim, the next call and the event in the ledger commit together. Who crashes before that has changed
//! nothing, and the same call is made again under the same key.

use postrider_core::{
    Error, Follow, FollowUp, IntoMessage, Invalid, MessageId,
    saga::{self, Act, Entry, Kind, Outcome, Part, Plan, State, replay, transition},
};
use std::{collections::BTreeMap, fmt};

/// The plans of a runner, by name.
#[derive(Clone, Default)]
pub(super) struct Plans(BTreeMap<String, Plan>);

impl Plans {
    pub(super) fn declare(&mut self, plan: Plan) -> Result<(), Invalid> {
        let name = plan.name().to_owned();
        if self.0.insert(name.clone(), plan).is_some() {
            return Err(Invalid::rule("plan", format!("{name:?} is there twice")));
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

/// What became of a call of a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It had its effect.
    Done,
    /// It has no effect, and no attempt had one.
    Failed,
    /// It was given up, and nobody knows whether it had its effect.
    GivenUp,
}

/// Why a saga does not go on. The kinds of errors that are kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum Halted {
    #[error(transparent)]
    Store(#[from] Error),
    #[error(transparent)]
    Unreadable(#[from] saga::Unreadable),
    #[error(transparent)]
    Refused(#[from] saga::Refused),
}

/// Where a saga stands, as its log says.
pub(super) struct Standing {
    pub(super) state: State,
    entries: usize,
}

/// Reads where a saga stands. It is this transaction's until that ends.
pub(super) async fn stands<S: Follow>(
    store: &S,
    tx: &mut S::Tx,
    plan: &Plan,
    saga: MessageId,
) -> Result<Standing, Halted> {
    let log = store.read_log(tx, saga).await?;
    Ok(Standing { state: replay(plan, &log)?, entries: log.len() })
}

/// Brings a saga on by an entry: writes it down, and stages the call that follows. Answers where it stands then, or with nothing if that
/// was known before.
pub(super) async fn advance<S: Follow>(
    store: &S,
    tx: &mut S::Tx,
    plan: &Plan,
    saga: MessageId,
    standing: &Standing,
    entry: &Entry,
    before: &FollowUp,
) -> Result<Option<State>, Halted> {
    let Outcome::Moved(state) = transition(plan, &standing.state, entry)? else { return Ok(None) };
    if state.is_over() {
        store.forget_log(tx, saga).await?;
    } else {
        store.append_log(tx, saga, standing.entries, entry).await?;
    }
    if let Some(command) = state.pending() {
        let next = plan.follow_up(saga, command, before).and_then(IntoMessage::into_message);
        store.stage_all(tx, &[next.map_err(Error::from)?]).await?;
    }
    Ok(Some(state))
}

/// What is written down about the end of a call.
pub(super) fn entry_of(plan: &Plan, part: &Part, end: End, state: State, error: &str) -> Entry {
    let (step, error) = (part.command.step, error.to_owned());
    let may_fail = plan.step(step).is_some_and(|step| *step.kind() != Kind::Retryable);
    match (part.command.act, end) {
        (Act::Do, End::Done) => Entry::Done { step },
        (Act::Undo, End::Done) => Entry::Undone { step },
        // That it had no effect answers the question, where there was one.
        (Act::Do, End::Failed) if state == State::InDoubt { step } => {
            Entry::Resolved { step, happened: false }
        }
        (Act::Do, End::Failed) if may_fail => Entry::Failed { step, error },
        (Act::Do, End::GivenUp) if may_fail => Entry::Unknown { step, error },
        (Act::Do | Act::Undo, End::Failed | End::GivenUp) => Entry::Stuck { step, error },
    }
}

/// Whether a failure of this call makes its saga turn, instead of being an end that somebody has to look at.
pub(super) fn turns(plan: &Plan, part: &Part) -> bool {
    let step = plan.step(part.command.step);
    part.command.act == Act::Do && step.is_some_and(|step| *step.kind() != Kind::Retryable)
}
