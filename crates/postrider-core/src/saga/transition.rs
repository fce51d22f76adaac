//! The transition function of sagas.

use super::{Fingerprint, LogEntry, Plan, SagaState};
use std::ops::Range;

/// The effect of a log entry on a saga.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transition {
    /// The saga is in this state now: append the entry, and stage the [pending](SagaState::pending) call.
    Moved(SagaState),
    /// The log may have this entry already. Nothing changes: do not append it.
    Repeated,
}

/// Why an entry was rejected. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// The saga was started under another plan: its log would be misread.
    #[error(
        "the saga was started under the plan {begun:?} ({fingerprint}), and this is {declared:?} ({expected}): \
         run it with that plan, and give a plan with changed steps another name"
    )]
    OtherPlan {
        /// The name of the plan under which it was started.
        begun: String,
        /// The fingerprint of that plan.
        fingerprint: Fingerprint,
        /// The name of this plan.
        declared: String,
        /// The fingerprint of this plan.
        expected: Fingerprint,
    },
    /// The entry contradicts the log, or is out of order.
    #[error(
        "\"{entry}\" is rejected: it contradicts the state of the saga ({state}) or is out of order; \
         the saga needs manual intervention"
    )]
    Illegal {
        /// The state of the saga.
        state: SagaState,
        /// The rejected entry.
        entry: LogEntry,
    },
}

/// The state of a saga after an entry. Total: defined for every state and entry.
///
/// ```
/// # use postrider_core::saga::{StepCall, LogEntry, Transition, Plan, SagaState, transition};
/// let plan = Plan::builder("pay").pivot("payment", StepCall::to("bank", "charge")).build()?;
/// let paying = SagaState::Forward { step: 0 };
/// assert_eq!(transition(&plan, &SagaState::New, &plan.begun()), Ok(Transition::Moved(paying)));
/// assert_eq!(transition(&plan, &paying, &LogEntry::Done { step: 0 }), Ok(Transition::Moved(SagaState::Completed)));
/// assert_eq!(transition(&plan, &SagaState::Completed, &LogEntry::Done { step: 0 }), Ok(Transition::Repeated));
/// assert!(transition(&plan, &SagaState::Completed, &LogEntry::Undone { step: 0 }).is_err());
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
///
/// # Errors
/// When the saga was started under another plan, or the entry contradicts the log, is out of order, or is about no step of the plan.
pub fn transition(plan: &Plan, state: &SagaState, entry: &LogEntry) -> Result<Transition, TransitionError> {
    if let LogEntry::Begun { plan: begun, fingerprint } = entry
        && (begun != plan.name() || *fingerprint != plan.fingerprint())
    {
        return Err(TransitionError::OtherPlan {
            begun: begun.clone(),
            fingerprint: *fingerprint,
            declared: plan.name().to_owned(),
            expected: plan.fingerprint(),
        });
    }
    if state.fits(plan) {
        if let Some(state) = moved(plan, *state, entry) {
            return Ok(Transition::Moved(state));
        }
        if Known::from(plan, *state).may_hold(entry) {
            return Ok(Transition::Repeated);
        }
    }
    Err(TransitionError::Illegal { state: *state, entry: entry.clone() })
}

/// The arrows of the diagram.
fn moved(plan: &Plan, state: SagaState, entry: &LogEntry) -> Option<SagaState> {
    use SagaState::*;
    // Every arrow is about the current step.
    if entry.step() != state.step() {
        return None;
    }
    let may_fail = |step: u32| step < plan.point_of_no_return();
    Some(match (state, entry) {
        (New, LogEntry::Begun { .. }) => forward(plan, 0),
        (Forward { step } | InDoubt { step } | StuckForward { step }, LogEntry::Done { .. }) => {
            forward(plan, step + 1)
        }
        (Forward { step }, LogEntry::Failed { .. }) if may_fail(step) => backward(step, step),
        (Forward { step }, LogEntry::Unknown { .. }) if may_fail(step) => InDoubt { step },
        (Forward { step }, LogEntry::Stuck { .. }) if !may_fail(step) => StuckForward { step },
        (InDoubt { step }, LogEntry::Resolved { happened: true, .. }) => forward(plan, step + 1),
        (InDoubt { step }, LogEntry::Resolved { happened: false, .. }) => backward(step, step),
        (StuckForward { step }, LogEntry::Unstuck { .. }) => Forward { step },
        (Backward { failed, step } | StuckBackward { failed, step }, LogEntry::Undone { .. }) => {
            backward(failed, step)
        }
        (Backward { failed, step }, LogEntry::Stuck { .. }) => StuckBackward { failed, step },
        (StuckBackward { failed, step }, LogEntry::Unstuck { .. }) => Backward { failed, step },
        _ => return None,
    })
}

/// Everything before `step` is done.
fn forward(plan: &Plan, step: u32) -> SagaState {
    if step < plan.len() { SagaState::Forward { step } } else { SagaState::Completed }
}

/// Everything from `undone` to the step that failed is undone, or never was done.
fn backward(failed: u32, undone: u32) -> SagaState {
    match undone.checked_sub(1) {
        Some(step) => SagaState::Backward { failed, step },
        None => SagaState::Compensated { failed },
    }
}

/// The content of the log of a saga, as far as its state implies it.
struct Known {
    state: SagaState,
    /// The steps before the point of no return.
    may_fail: Range<u32>,
    /// The steps that were done, compensated or not.
    done: Range<u32>,
    /// The compensated steps.
    undone: Range<u32>,
}

impl Known {
    fn from(plan: &Plan, state: SagaState) -> Self {
        let (done, undone) = match state {
            SagaState::New => (0, 0..0),
            SagaState::Forward { step } | SagaState::InDoubt { step } | SagaState::StuckForward { step } => {
                (step, 0..0)
            }
            SagaState::Backward { failed, step } | SagaState::StuckBackward { failed, step } => {
                (failed, step + 1..failed)
            }
            SagaState::Compensated { failed } => (failed, 0..failed),
            SagaState::Completed => (plan.len(), 0..0),
        };
        Self { state, may_fail: 0..plan.point_of_no_return(), done: 0..done, undone }
    }

    /// Whether a log that leads to this state may have the entry. Only for entries that change nothing.
    fn may_hold(&self, entry: &LogEntry) -> bool {
        match entry {
            LogEntry::Begun { .. } => true,
            LogEntry::Done { step } => self.done.contains(step),
            LogEntry::Failed { step, .. } | LogEntry::Resolved { step, happened: false } => {
                self.has_failed(*step)
            }
            LogEntry::Resolved { step, happened: true } => {
                self.may_fail.contains(step) && self.done.contains(step)
            }
            LogEntry::Unknown { step, .. } => {
                let doubted = self.state == SagaState::InDoubt { step: *step };
                doubted || self.has_failed(*step) || self.may_fail.contains(step) && self.done.contains(step)
            }
            LogEntry::Undone { step } => self.undone.contains(step),
            LogEntry::Stuck { step, .. } | LogEntry::Unstuck { step } => self.may_have_been_stuck(*step),
        }
    }

    fn has_failed(&self, step: u32) -> bool {
        self.state.failed() == Some(step)
    }

    /// Only calls that must succeed eventually can be stuck: retryable steps and compensations. The current one may have been, too.
    fn may_have_been_stuck(&self, step: u32) -> bool {
        let here = self.state.step() == Some(step);
        if self.state.failed().is_some() {
            here || self.undone.contains(&step)
        } else {
            !self.may_fail.contains(&step) && (here || self.done.contains(&step))
        }
    }
}
