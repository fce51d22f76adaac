//! The state of a saga.

use super::{Command, Plan};
use std::fmt;

/// The state of a saga. It is not stored: it follows from the log. Steps are counted from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SagaState {
    /// The log is empty.
    #[default]
    New,
    /// This step is in progress; all before it are done.
    Forward {
        /// The step.
        step: u32,
    },
    /// The outcome of this step is unknown; all before it are done. It needs an operator's answer.
    InDoubt {
        /// The step.
        step: u32,
    },
    /// This retryable step was abandoned; all before it are done. It needs manual intervention.
    StuckForward {
        /// The step.
        step: u32,
    },
    /// A step failed, and all before it were done. This one is being compensated; those between the two are.
    Backward {
        /// The step that failed.
        failed: u32,
        /// The step that is being compensated.
        step: u32,
    },
    /// The compensation of this step was abandoned. It needs manual intervention.
    StuckBackward {
        /// The step that failed.
        failed: u32,
        /// The step that could not be compensated.
        step: u32,
    },
    /// All steps are done.
    Completed,
    /// A step failed, and all before it are compensated.
    Compensated {
        /// The step that failed.
        failed: u32,
    },
}

impl SagaState {
    /// Its name in tables, metrics and on screen.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Forward { .. } => "forward",
            Self::InDoubt { .. } => "in_doubt",
            Self::StuckForward { .. } => "stuck_forward",
            Self::Backward { .. } => "backward",
            Self::StuckBackward { .. } => "stuck_backward",
            Self::Completed => "completed",
            Self::Compensated { .. } => "compensated",
        }
    }

    /// The current step: in progress, in doubt or stuck.
    pub const fn step(self) -> Option<u32> {
        match self {
            Self::New | Self::Completed | Self::Compensated { .. } => None,
            Self::Forward { step }
            | Self::InDoubt { step }
            | Self::StuckForward { step }
            | Self::Backward { step, .. }
            | Self::StuckBackward { step, .. } => Some(step),
        }
    }

    /// The step whose failure started the compensation.
    pub const fn failed(self) -> Option<u32> {
        match self {
            Self::Backward { failed, .. }
            | Self::StuckBackward { failed, .. }
            | Self::Compensated { failed } => Some(failed),
            _ => None,
        }
    }

    /// The call that must be in progress. The transaction that brings a saga into this state stages it; a runner that finds a saga in this
    /// state without it, after a restore or a lost queue, stages it again.
    pub const fn pending(self) -> Option<Command> {
        match self {
            Self::Forward { step } => Some(Command::perform(step)),
            Self::Backward { step, .. } => Some(Command::undo(step)),
            _ => None,
        }
    }

    /// Whether the saga has ended, completed or compensated.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Compensated { .. })
    }

    /// Whether the saga needs manual intervention.
    pub const fn needs_a_hand(self) -> bool {
        matches!(self, Self::InDoubt { .. } | Self::StuckForward { .. } | Self::StuckBackward { .. })
    }

    /// Whether a saga of this plan can be in this state.
    pub fn fits(self, plan: &Plan) -> bool {
        let border = plan.point_of_no_return();
        match self {
            Self::New | Self::Completed => true,
            Self::Forward { step } => step < plan.len(),
            Self::InDoubt { step } => step < border,
            Self::StuckForward { step } => (border..plan.len()).contains(&step),
            Self::Backward { failed, step } | Self::StuckBackward { failed, step } => {
                step < failed && failed < border
            }
            Self::Compensated { failed } => failed < border,
        }
    }
}

impl fmt::Display for SagaState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("new"),
            Self::Forward { step } => write!(f, "going forward at step {step}"),
            Self::InDoubt { step } => write!(f, "in doubt about step {step}"),
            Self::StuckForward { step } => write!(f, "stuck at step {step}"),
            Self::Backward { failed, step } => {
                write!(f, "compensating step {step} because step {failed} failed")
            }
            Self::StuckBackward { failed, step } => {
                write!(f, "stuck compensating step {step} because step {failed} failed")
            }
            Self::Completed => f.write_str("completed"),
            Self::Compensated { failed } => write!(f, "compensated because step {failed} failed"),
        }
    }
}
