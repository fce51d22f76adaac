//! What holds for a whole queue, whoever reads it.

use crate::Invalid;
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
    /// Whether tenants take turns, so that none of them waits behind another's backlog.
    #[serde(default)]
    pub fair_by_tenant: bool,
}

impl Default for QueuePolicy {
    /// Unordered, nothing kept on success, dead letters on, tenants not told apart.
    fn default() -> Self {
        Self { ordering: Ordering::Unordered, keep_for: None, dead_letters: true, fair_by_tenant: false }
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

    /// Lets tenants take turns. Every claim is shared out among the tenants that have something waiting, equally or by
    /// [`TenantWeights`](crate::TenantWeights), and messages without a tenant are one more tenant. Nobody is capped: a lone
    /// tenant gets everything, and what one does not use goes to the others.
    ///
    /// ```
    /// # use postrider_core::QueuePolicy;
    /// let policy = QueuePolicy::default().fair_by_tenant();
    /// assert!(policy.check().is_ok());
    /// ```
    #[must_use]
    pub fn fair_by_tenant(mut self) -> Self {
        self.fair_by_tenant = true;
        self
    }

    /// Whether all of this can hold at once. Stores ask before they declare it.
    ///
    /// # Errors
    /// Names what cannot, and says what can.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.keep_for.is_some_and(|keep_for| keep_for.is_zero()) {
            return Err(Invalid::rule("keep_for", "is zero; leave it out to keep nothing"));
        }
        if self.fair_by_tenant && self.ordering != Ordering::Unordered {
            let rule = "cannot be combined with ordering by key, whose keys take turns already: choose one of the two";
            return Err(Invalid::rule("fair_by_tenant", rule));
        }
        Ok(())
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
