//! Entries of a saga log.

use super::Fingerprint;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An entry of a saga log. Steps are counted from 0. Entries carry kinds of errors, never error texts or payloads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case", deny_unknown_fields)]
pub enum LogEntry {
    /// The saga was started.
    Begun {
        /// The name of its plan.
        plan: String,
        /// The fingerprint of the plan.
        fingerprint: Fingerprint,
    },
    /// A step had its effect.
    Done {
        /// The step.
        step: u32,
    },
    /// A compensatable step or the pivot failed, and certainly no attempt had an effect.
    Failed {
        /// The step.
        step: u32,
        /// The kind of error.
        error: String,
    },
    /// The outcome of a compensatable step or of the pivot is unknown.
    Unknown {
        /// The step.
        step: u32,
        /// The kind of error.
        error: String,
    },
    /// An operator or the resolver found out whether a step in doubt had its effect, and that it cannot have it later.
    Resolved {
        /// The step.
        step: u32,
        /// Whether it had its effect.
        happened: bool,
    },
    /// A step was compensated.
    Undone {
        /// The step.
        step: u32,
    },
    /// A retryable step or a compensation was abandoned for now.
    Stuck {
        /// The step.
        step: u32,
        /// The kind of error.
        error: String,
    },
    /// An abandoned call was requeued.
    Unstuck {
        /// The step.
        step: u32,
    },
}

impl LogEntry {
    /// Which step it is about.
    pub const fn step(&self) -> Option<u32> {
        match self {
            Self::Begun { .. } => None,
            Self::Done { step }
            | Self::Failed { step, .. }
            | Self::Unknown { step, .. }
            | Self::Resolved { step, .. }
            | Self::Undone { step }
            | Self::Stuck { step, .. }
            | Self::Unstuck { step } => Some(*step),
        }
    }
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begun { plan, fingerprint } => write!(f, "begun under the plan {plan:?} ({fingerprint})"),
            Self::Done { step } => write!(f, "step {step} done"),
            Self::Failed { step, error } => write!(f, "step {step} failed ({error})"),
            Self::Unknown { step, error } => write!(f, "step {step} unknown ({error})"),
            Self::Resolved { step, happened: true } => write!(f, "step {step} resolved: it happened"),
            Self::Resolved { step, happened: false } => write!(f, "step {step} resolved: it did not happen"),
            Self::Undone { step } => write!(f, "step {step} undone"),
            Self::Stuck { step, error } => write!(f, "step {step} stuck ({error})"),
            Self::Unstuck { step } => write!(f, "step {step} unstuck"),
        }
    }
}
