//! Health checks of a store beyond its tables, which [`Schema::validate`](crate::schema::Schema::validate) checks.

use crate::{Error, Finding};
use async_trait::async_trait;
use std::{fmt::Debug, time::Duration};

/// Checks a store: its server or file, its settings, its connections, and conditions that slow it down.
#[async_trait]
pub trait Checkup: Debug + Send + Sync + 'static {
    /// Reports conditions that lose messages, delay them or make calls slower, each with its fix. Changes nothing. An empty list means
    /// that all is well. A check that cannot be made is a finding, too, as long as others can.
    ///
    /// # Errors
    /// When no check can be made.
    async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error>;
}

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
