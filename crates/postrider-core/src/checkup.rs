//! Health checks of a store beyond its tables: see [`Schema::checkup`](crate::schema::Schema::checkup).

use std::time::Duration;

/// The parameters of a checkup.
#[derive(Debug, Clone)]
pub struct CheckupRequest {
    /// A transaction that is open for longer is reported.
    pub longest_transaction: Duration,
    /// The store role (producer, worker, operator …) whose grants the connecting user should have.
    pub role: Option<String>,
}

impl CheckupRequest {
    /// All checks, with transactions of up to five minutes, and without a check of grants.
    pub fn new() -> Self {
        Self { longest_transaction: Duration::from_secs(5 * 60), role: None }
    }

    /// Reports transactions that are open for longer than this.
    #[must_use]
    pub fn with_longest_transaction(mut self, longest: Duration) -> Self {
        self.longest_transaction = longest;
        self
    }

    /// Checks that the connecting user has the grants of this role.
    #[must_use]
    pub fn with_role(mut self, role: impl Into<String>) -> Self {
        self.role = Some(role.into());
        self
    }
}

impl Default for CheckupRequest {
    fn default() -> Self {
        Self::new()
    }
}
