//! The seam to what a store needs before it can hold messages.

use crate::{Error, QueueName, QueuePolicy};
use async_trait::async_trait;
use std::fmt::{self, Debug};

/// A store's tables, and the queues declared in them.
#[async_trait]
pub trait Schema: Debug + Send + Sync + 'static {
    /// Brings the tables to this version. Safe when many processes do it at once, and when it is already done.
    async fn migrate(&self) -> Result<(), Error>;

    /// Reports everything that is missing or altered. Changes nothing, and ignores what is there besides.
    async fn validate(&self) -> Result<Vec<Drift>, Error>;

    /// The statements that [`migrate`](Self::migrate) would run on an empty database, for teams with a migration tool of
    /// their own.
    fn print(&self) -> String;

    /// Declares what holds for a queue. Queues that nobody declares are made when first used, with the default policy.
    /// The ordering of a queue can change only while the queue is empty; other processes may go by the old policy for about a
    /// second, so stop a queue's workers while its ordering changes. Fairness between
    /// tenants can be turned on and off at any time.
    async fn declare(&self, queue: &QueueName, policy: &QueuePolicy) -> Result<(), Error>;
}

/// A difference between the tables and what this version needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Drift {
    /// What it is about, such as `index ready_key`.
    pub object: String,
    /// What this version needs.
    pub expected: String,
    /// What is there, unless nothing is.
    pub found: Option<String>,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            None => write!(f, "{} is missing: expected {}", self.object, self.expected),
            Some(found) => write!(f, "{} is altered: expected {}, found {found}", self.object, self.expected),
        }
    }
}
