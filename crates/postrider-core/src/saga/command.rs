//! What a runner is to call.

use crate::MessageId;
use sha2::{Digest, Sha256};
use std::fmt;

/// What is to be done about a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Act {
    /// Carry it out.
    Do,
    /// Undo it.
    Undo,
}

impl Act {
    /// Its name. It is part of the identity of every call: it never changes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Do => "do",
            Self::Undo => "undo",
        }
    }
}

/// A call that has to be under way: stage its follow-up, or put it back if it was given up. [`Plan::call`](super::Plan::call) says whom to call, and for
/// what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Command {
    /// What is to be done about it.
    pub act: Act,
    /// The step, counted from 0.
    pub step: u32,
}

impl Command {
    /// Carry out a step.
    pub const fn perform(step: u32) -> Self {
        Self { act: Act::Do, step }
    }

    /// Undo a step.
    pub const fn undo(step: u32) -> Self {
        Self { act: Act::Undo, step }
    }

    /// The identity of its follow-up in the saga `saga`: the same whoever asks, and however often. It is the idempotency key of the call.
    ///
    /// It is a UUIDv8 that begins like the saga's own id. If that is a UUIDv7, the calls of a saga lie beside it in every index, where a plain
    /// hash would scatter them.
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
