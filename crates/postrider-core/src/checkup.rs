//! The seam to what may be wrong with a store, beyond its tables, which are [`Schema::validate`](crate::schema::Schema::validate)'s.

use crate::{Error, Finding};
use async_trait::async_trait;
use std::{fmt::Debug, time::Duration};

/// Looks a store over: its server or file, its settings, its connections, and what keeps it from working well.
#[async_trait]
pub trait Checkup: Debug + Send + Sync + 'static {
    /// What would lose messages, hold them up or make every call dearer, and how to mend it. Changes nothing. Finding nothing is
    /// the good answer. What cannot be looked at is a finding, too, as long as the rest can.
    ///
    /// # Errors
    /// When nothing can be looked at.
    async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error>;
}

/// What to look for.
#[derive(Debug, Clone)]
pub struct CheckupRequest {
    /// A transaction that is open for longer is told.
    pub longest_transaction: Duration,
    /// What whoever connects is there to do: it should have the rights for that. The name of one of the store's roles.
    pub role: Option<String>,
}

impl CheckupRequest {
    /// Everything, with transactions of up to five minutes, and no question about rights.
    pub fn new() -> Self {
        Self { longest_transaction: Duration::from_secs(5 * 60), role: None }
    }

    /// Tells of transactions that are open for longer than this.
    #[must_use]
    pub fn with_longest_transaction(mut self, longest: Duration) -> Self {
        self.longest_transaction = longest;
        self
    }

    /// Asks whether whoever connects has the rights of this role.
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
