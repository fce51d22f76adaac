//! What is appended to the log of a saga.

use super::Fingerprint;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What became of a saga. Steps are counted from 0. It carries kinds of errors, never their texts, and nothing of a payload.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// It was begun.
    Begun {
        /// The name of its plan.
        plan: String,
        /// What tells the plan from others.
        fingerprint: Fingerprint,
    },
    /// A step had its effect.
    Done {
        /// Which.
        step: u32,
    },
    /// A compensatable step or the pivot will not have its effect, and no attempt had it: that is certain.
    Failed {
        /// Which.
        step: u32,
        /// The kind of error.
        error: String,
    },
    /// Nobody knows whether a compensatable step or the pivot had its effect.
    Unknown {
        /// Which.
        step: u32,
        /// The kind of error.
        error: String,
    },
    /// Somebody, or a check, found out whether a step that was in doubt had its effect, and that it no longer can if it had not.
    Resolved {
        /// Which.
        step: u32,
        /// Whether it had.
        happened: bool,
    },
    /// The effect of a step was undone.
    Undone {
        /// Which.
        step: u32,
    },
    /// A retryable step, or the undoing of a step, was given up for now.
    Stuck {
        /// Which.
        step: u32,
        /// The kind of error.
        error: String,
    },
    /// What was given up was put back.
    Unstuck {
        /// Which.
        step: u32,
    },
}

impl Entry {
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

impl fmt::Display for Entry {
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
