//! The policy of a queue.

use crate::Invalid;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The policy of a queue: ordering, retention, dead letters, fairness. The store keeps it, so that every process applies the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePolicy {
    /// The ordering of deliveries.
    pub ordering: Ordering,
    /// The retention of delivered messages; `None` deletes them on delivery.
    pub keep_for: Option<Duration>,
    /// Whether messages that failed permanently are kept as dead letters.
    pub dead_letters: bool,
    /// Whether claims are shared fairly among tenants, so that no tenant waits behind another's backlog.
    #[serde(default)]
    pub fair_by_tenant: bool,
}

impl Default for QueuePolicy {
    /// Unordered, without retention, with dead letters, without fairness between tenants.
    fn default() -> Self {
        Self { ordering: Ordering::Unordered, keep_for: None, dead_letters: true, fair_by_tenant: false }
    }
}

impl QueuePolicy {
    /// The default policy, ordered by key.
    pub fn by_key(on_failure: OnFailure) -> Self {
        Self { ordering: Ordering::ByKey(on_failure), ..Self::default() }
    }

    /// Keeps delivered messages for `keep_for`.
    #[must_use]
    pub fn with_keep_for(mut self, keep_for: Duration) -> Self {
        self.keep_for = Some(keep_for);
        self
    }

    /// Deletes messages that failed permanently instead of keeping them as dead letters.
    #[must_use]
    pub fn without_dead_letters(mut self) -> Self {
        self.dead_letters = false;
        self
    }

    /// Shares every claim among the tenants that have due messages, equally or by [`TenantWeights`](crate::TenantWeights). Messages
    /// without a tenant count as one more tenant. No tenant is capped: a lone tenant gets the whole claim, and an unused share goes to
    /// the others.
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

    /// Checks that the settings can be combined. Stores call it before they declare a queue.
    ///
    /// # Errors
    /// Names the setting that cannot be combined, and the alternative.
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

/// The ordering of a queue's deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ordering {
    /// Roughly in the order of staging; many at once.
    Unordered,
    /// Per key: one message at a time, in the order of staging, across any number of processes.
    ByKey(OnFailure),
}

/// The effect of a failure on the key of an ordered queue. In every case no later message of the key overtakes the failed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnFailure {
    /// A retry keeps its position, and the key waits with it. A permanent failure parks the key.
    Block,
    /// The first failure parks the key until an operator releases it.
    Park,
    /// A retry keeps its position. A permanent failure becomes a dead letter, and the key continues.
    Skip,
}
