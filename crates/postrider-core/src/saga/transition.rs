//! The one function that says what an entry does to a saga.

use super::{Entry, Fingerprint, Plan, State};
use std::ops::Range;

/// What an entry does to a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is in this state now: append the entry, and see to what is [pending](State::pending).
    Moved(State),
    /// The log may hold this entry already. Nothing changes, and nothing is to be done: do not append it.
    Repeated,
}

/// Why an entry was not accepted. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The saga was begun under another plan: its log would be misread.
    #[error(
        "the saga was begun under the plan {begun:?} ({fingerprint}), and this is {declared:?} ({expected}): \
         run it with the plan under which it was begun, and give a plan whose steps change another name"
    )]
    OtherPlan {
        /// The name of the plan under which it was begun.
        begun: String,
        /// What told that plan from others.
        fingerprint: Fingerprint,
        /// The name of this plan.
        declared: String,
        /// What tells this plan from others.
        expected: Fingerprint,
    },
    /// The entry contradicts what is known of the saga, or comes out of turn.
    #[error(
        "\"{entry}\" is refused: the saga is {state}, which this contradicts, or it comes out of turn; \
         somebody has to look at what happened"
    )]
    Illegal {
        /// Where the saga stands.
        state: State,
        /// What was refused.
        entry: Entry,
    },
}

/// Where a saga stands after an entry. Total: whatever state and entry are given, it answers.
///
/// ```
/// # use postrider_core::saga::{Call, Entry, Outcome, Plan, State, transition};
/// let plan = Plan::builder("pay").pivot("payment", Call::to("bank", "charge")).build()?;
/// let paying = State::Forward { step: 0 };
/// assert_eq!(transition(&plan, &State::New, &plan.begun()), Ok(Outcome::Moved(paying)));
/// assert_eq!(transition(&plan, &paying, &Entry::Done { step: 0 }), Ok(Outcome::Moved(State::Completed)));
/// assert_eq!(transition(&plan, &State::Completed, &Entry::Done { step: 0 }), Ok(Outcome::Repeated));
/// assert!(transition(&plan, &State::Completed, &Entry::Undone { step: 0 }).is_err());
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
///
/// # Errors
/// When the saga was begun under another plan, or the entry contradicts what is known, comes out of turn, or is about no step of the plan.
pub fn transition(plan: &Plan, state: &State, entry: &Entry) -> Result<Outcome, Refused> {
    if let Entry::Begun { plan: begun, fingerprint } = entry
        && (begun != plan.name() || *fingerprint != plan.fingerprint())
    {
        return Err(Refused::OtherPlan {
            begun: begun.clone(),
            fingerprint: *fingerprint,
            declared: plan.name().to_owned(),
            expected: plan.fingerprint(),
        });
    }
    if state.fits(plan) {
        if let Some(state) = moved(plan, *state, entry) {
            return Ok(Outcome::Moved(state));
        }
        if Known::from(plan, *state).may_hold(entry) {
            return Ok(Outcome::Repeated);
        }
    }
    Err(Refused::Illegal { state: *state, entry: entry.clone() })
}

/// The arrows of the diagram.
fn moved(plan: &Plan, state: State, entry: &Entry) -> Option<State> {
    use State::*;
    // Every arrow is about the step at which the saga stands.
    if entry.step() != state.step() {
        return None;
    }
    let may_fail = |step: u32| step < plan.point_of_no_return();
    Some(match (state, entry) {
        (New, Entry::Begun { .. }) => forward(plan, 0),
        (Forward { step } | InDoubt { step } | StuckForward { step }, Entry::Done { .. }) => {
            forward(plan, step + 1)
        }
        (Forward { step }, Entry::Failed { .. }) if may_fail(step) => backward(step, step),
        (Forward { step }, Entry::Unknown { .. }) if may_fail(step) => InDoubt { step },
        (Forward { step }, Entry::Stuck { .. }) if !may_fail(step) => StuckForward { step },
        (InDoubt { step }, Entry::Resolved { happened: true, .. }) => forward(plan, step + 1),
        (InDoubt { step }, Entry::Resolved { happened: false, .. }) => backward(step, step),
        (StuckForward { step }, Entry::Unstuck { .. }) => Forward { step },
        (Backward { failed, step } | StuckBackward { failed, step }, Entry::Undone { .. }) => {
            backward(failed, step)
        }
        (Backward { failed, step }, Entry::Stuck { .. }) => StuckBackward { failed, step },
        (StuckBackward { failed, step }, Entry::Unstuck { .. }) => Backward { failed, step },
        _ => return None,
    })
}

/// Everything before `step` is done.
fn forward(plan: &Plan, step: u32) -> State {
    if step < plan.len() { State::Forward { step } } else { State::Completed }
}

/// Everything from `undone` to the step that failed is undone, or never was done.
fn backward(failed: u32, undone: u32) -> State {
    match undone.checked_sub(1) {
        Some(step) => State::Backward { failed, step },
        None => State::Compensated { failed },
    }
}

/// What the log of a saga in some state tells, as far as the state knows.
struct Known {
    state: State,
    /// The steps before the point of no return.
    may_fail: Range<u32>,
    /// Those that were done, whether or not they were undone.
    done: Range<u32>,
    /// Those that were undone.
    undone: Range<u32>,
}

impl Known {
    fn from(plan: &Plan, state: State) -> Self {
        let (done, undone) = match state {
            State::New => (0, 0..0),
            State::Forward { step } | State::InDoubt { step } | State::StuckForward { step } => (step, 0..0),
            State::Backward { failed, step } | State::StuckBackward { failed, step } => {
                (failed, step + 1..failed)
            }
            State::Compensated { failed } => (failed, 0..failed),
            State::Completed => (plan.len(), 0..0),
        };
        Self { state, may_fail: 0..plan.point_of_no_return(), done: 0..done, undone }
    }

    /// Whether a log that leads to this state may hold the entry. Asked only of entries that are no news.
    fn may_hold(&self, entry: &Entry) -> bool {
        match entry {
            Entry::Begun { .. } => true,
            Entry::Done { step } => self.done.contains(step),
            Entry::Failed { step, .. } | Entry::Resolved { step, happened: false } => self.has_failed(*step),
            Entry::Resolved { step, happened: true } => {
                self.may_fail.contains(step) && self.done.contains(step)
            }
            Entry::Unknown { step, .. } => {
                let doubted = self.state == State::InDoubt { step: *step };
                doubted || self.has_failed(*step) || self.may_fail.contains(step) && self.done.contains(step)
            }
            Entry::Undone { step } => self.undone.contains(step),
            Entry::Stuck { step, .. } | Entry::Unstuck { step } => self.may_have_been_stuck(*step),
        }
    }

    fn has_failed(&self, step: u32) -> bool {
        self.state.failed() == Some(step)
    }

    /// Only what must succeed at last can be stuck: retryable steps, and the undoing of others. What stands there now may have been, too.
    fn may_have_been_stuck(&self, step: u32) -> bool {
        let here = self.state.step() == Some(step);
        if self.state.failed().is_some() {
            here || self.undone.contains(&step)
        } else {
            !self.may_fail.contains(&step) && (here || self.done.contains(&step))
        }
    }
}
