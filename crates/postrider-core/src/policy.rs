//! What holds for a whole queue, whoever reads it.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What holds for a whole queue. Kept by the store, so that every process agrees on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePolicy {
    /// In what order messages are delivered.
    pub ordering: Ordering,
    /// How long what was delivered is kept in the archive; `None` keeps nothing.
    pub keep_for: Option<Duration>,
    /// Whether what failed for good is kept as a dead letter.
    pub dead_letters: bool,
}

impl Default for QueuePolicy {
    /// Unordered, nothing kept on success, dead letters on.
    fn default() -> Self {
        Self { ordering: Ordering::Unordered, keep_for: None, dead_letters: true }
    }
}

impl QueuePolicy {
    /// The default policy, ordered by key.
    pub fn by_key(on_failure: OnFailure) -> Self {
        Self { ordering: Ordering::ByKey(on_failure), ..Self::default() }
    }

    /// Keeps what was delivered for so long.
    #[must_use]
    pub fn with_keep_for(mut self, keep_for: Duration) -> Self {
        self.keep_for = Some(keep_for);
        self
    }

    /// Deletes what failed for good instead of keeping it.
    #[must_use]
    pub fn without_dead_letters(mut self) -> Self {
        self.dead_letters = false;
        self
    }
}

/// In what order the messages of a queue are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ordering {
    /// Roughly in the order staged; many at once.
    Unordered,
    /// Within a key: one at a time, in the order staged, across any number of processes.
    ByKey(OnFailure),
}

/// What happens to a key when the message at its head fails. In every case nothing of the key overtakes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    /// A retry waits in place, and the key with it. What failed for good parks the key.
    Block,
    /// The first failure parks the key: it is shown, and waits to be released by hand.
    Park,
    /// A retry waits in place. What failed for good becomes a dead letter, and the key goes on.
    Skip,
}
