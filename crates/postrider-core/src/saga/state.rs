//! Where a saga stands.

use super::{Command, Plan};
use std::fmt;

/// Where a saga stands. It is never written down: the log tells. Steps are counted from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// Nothing is in its log.
    #[default]
    New,
    /// This step is under way; all before it are done.
    Forward {
        /// Which.
        step: u32,
    },
    /// Nobody knows whether this step had its effect; all before it are done. It waits for an answer.
    InDoubt {
        /// Which.
        step: u32,
    },
    /// This retryable step was given up; all before it are done. It waits for a hand.
    StuckForward {
        /// Which.
        step: u32,
    },
    /// A step failed, and all before it were done. This one is being undone; those between the two are.
    Backward {
        /// The step that failed.
        failed: u32,
        /// The step that is being undone.
        step: u32,
    },
    /// The undoing of this step was given up. It waits for a hand.
    StuckBackward {
        /// The step that failed.
        failed: u32,
        /// The step that could not be undone.
        step: u32,
    },
    /// All steps are done.
    Completed,
    /// A step failed, and all before it are undone.
    Compensated {
        /// The step that failed.
        failed: u32,
    },
}

impl State {
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

    /// The step at which it stands: under way, in doubt or stuck.
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

    /// The step that failed, and made it turn.
    pub const fn failed(self) -> Option<u32> {
        match self {
            Self::Backward { failed, .. }
            | Self::StuckBackward { failed, .. }
            | Self::Compensated { failed } => Some(failed),
            _ => None,
        }
    }

    /// The call that has to be under way. Whoever has brought a saga into this state stages it in the same transaction; whoever finds a saga
    /// in this state without it, after a restore or a lost queue, stages it again.
    pub const fn pending(self) -> Option<Command> {
        match self {
            Self::Forward { step } => Some(Command::perform(step)),
            Self::Backward { step, .. } => Some(Command::undo(step)),
            _ => None,
        }
    }

    /// Whether it has ended, one way or the other.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Compensated { .. })
    }

    /// Whether nothing happens until somebody says or does something.
    pub const fn needs_a_hand(self) -> bool {
        matches!(self, Self::InDoubt { .. } | Self::StuckForward { .. } | Self::StuckBackward { .. })
    }

    /// Whether a saga of this plan can be in it.
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

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New => f.write_str("new"),
            Self::Forward { step } => write!(f, "going forward at step {step}"),
            Self::InDoubt { step } => write!(f, "in doubt about step {step}"),
            Self::StuckForward { step } => write!(f, "stuck at step {step}"),
            Self::Backward { failed, step } => write!(f, "undoing step {step} because step {failed} failed"),
            Self::StuckBackward { failed, step } => {
                write!(f, "stuck in undoing step {step} because step {failed} failed")
            }
            Self::Completed => f.write_str("completed"),
            Self::Compensated { failed } => write!(f, "compensated because step {failed} failed"),
        }
    }
}
