//! The result of staging.

use crate::MessageId;

/// The outcome for each message of a staging call, in the order given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StageReport {
    outcomes: Vec<(MessageId, StageOutcome)>,
}

/// The outcome of staging one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StageOutcome {
    /// Staged; delivered if the transaction commits.
    New,
    /// The queue already has this id: nothing changed.
    Duplicate,
    /// An active timer of this name exists and stays unchanged. The id is that of the message that was not staged.
    Ignored,
    /// The active timer of this name was extended; the id is that timer's.
    Extended,
}

impl StageReport {
    /// The outcomes of a call, message by message.
    pub fn new(outcomes: Vec<(MessageId, StageOutcome)>) -> Self {
        Self { outcomes }
    }

    /// The id and the outcome of each message, in the order given.
    pub fn outcomes(&self) -> &[(MessageId, StageOutcome)] {
        &self.outcomes
    }

    /// The id of the first message.
    pub fn id(&self) -> Option<MessageId> {
        self.outcomes.first().map(|(id, _)| *id)
    }

    /// The number of new messages.
    pub fn new_messages(&self) -> usize {
        self.count(StageOutcome::New)
    }

    /// The number of duplicates.
    pub fn duplicates(&self) -> usize {
        self.count(StageOutcome::Duplicate)
    }

    fn count(&self, fate: StageOutcome) -> usize {
        self.outcomes.iter().filter(|(_, each)| *each == fate).count()
    }
}
