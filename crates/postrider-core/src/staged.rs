//! What staging answers.

use crate::MessageId;

/// What became of each message of a call, in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Staged {
    fates: Vec<(MessageId, Fate)>,
}

/// What became of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fate {
    /// It is staged, and delivered if the transaction commits.
    New,
    /// This identity is already known in this queue: nothing changed.
    Duplicate,
    /// A timer of this name already lives and stays as it is. The id is the one that was given or made for the message
    /// that was not staged.
    Ignored,
    /// The living timer of this name was extended; the id is that timer's.
    Extended,
}

impl Staged {
    /// The answer to a call, message by message.
    pub fn new(fates: Vec<(MessageId, Fate)>) -> Self {
        Self { fates }
    }

    /// Each message's identity and fate, in the order given.
    pub fn fates(&self) -> &[(MessageId, Fate)] {
        &self.fates
    }

    /// The identity of the first message: of the only one, when one was staged.
    pub fn id(&self) -> Option<MessageId> {
        self.fates.first().map(|(id, _)| *id)
    }

    /// How many messages are new.
    pub fn new_messages(&self) -> usize {
        self.count(Fate::New)
    }

    /// How many were known already.
    pub fn duplicates(&self) -> usize {
        self.count(Fate::Duplicate)
    }

    fn count(&self, fate: Fate) -> usize {
        self.fates.iter().filter(|(_, each)| *each == fate).count()
    }
}
