//! The calls of a saga.

use crate::MessageId;
use sha2::{Digest, Sha256};
use std::fmt;

/// The kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CommandKind {
    /// Execute the step.
    Do,
    /// Compensate the step.
    Undo,
}

impl CommandKind {
    /// Its name. It is part of the id of every call and never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Do => "do",
            Self::Undo => "undo",
        }
    }
}

/// A call that must be in progress: stage its follow-up, or requeue it if it was abandoned. [`Plan::call`](super::Plan::call) returns its
/// resolver and operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    /// The kind of the call.
    pub act: CommandKind,
    /// The step, from 0.
    pub step: u32,
}

impl Command {
    /// Executes a step.
    pub const fn perform(step: u32) -> Self {
        Self { act: CommandKind::Do, step }
    }

    /// Compensates a step.
    pub const fn undo(step: u32) -> Self {
        Self { act: CommandKind::Undo, step }
    }

    /// The id of its follow-up in the saga `saga`, derived deterministically. It is the idempotency key of the call.
    ///
    /// It is a UUIDv8 that begins like the saga's own id. If that is a UUIDv7, the calls of a saga are adjacent in every index, where a
    /// plain hash would scatter them.
    pub fn follow_up_id(self, saga: MessageId) -> MessageId {
        const TIME: usize = 6;
        let saga = saga.as_uuid().into_bytes();
        let mut digest = Sha256::new();
        digest.update(saga);
        digest.update(self.step.to_be_bytes());
        digest.update(self.act.as_str());
        let mut id = saga;
        for (byte, hashed) in id.iter_mut().zip(digest.finalize()).skip(TIME) {
            *byte = hashed;
        }
        MessageId::from_uuid(uuid::Builder::from_custom_bytes(id).into_uuid())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} step {}", self.act.as_str(), self.step)
    }
}
