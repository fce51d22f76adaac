//! The seam to what a store needs before it can hold messages.

use crate::{Error, QueueName, QueuePolicy};
use async_trait::async_trait;
use std::{
    fmt::{self, Debug},
    time::SystemTime,
};

/// A store's tables, and the queues declared in them.
#[async_trait]
pub trait Schema: Debug + Send + Sync + 'static {
    /// Brings the tables to this version. Safe when many processes do it at once, and when it is already done.
    async fn migrate(&self) -> Result<(), Error>;

    /// Which migrations were run and which were not, by the record that [`migrate`](Self::migrate) leaves. Tables that were made from
    /// what is [printed](Self::print) have none.
    async fn migrations(&self) -> Result<Migrations, Error>;

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

/// How far a store's tables have come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migrations {
    /// Those that were run, the last one last; by a newer version perhaps, which knows more of them.
    pub applied: Vec<Applied>,
    /// Those that [`Schema::migrate`] would run.
    pub pending: Vec<Pending>,
    /// The number of the last one that this version knows; 0 where there are no tables.
    pub needed: i64,
}

/// A migration that was run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Its number.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// When, by the database's clock.
    pub at: SystemTime,
}

/// A migration that was not run yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its number.
    pub number: i64,
    /// Its name.
    pub name: String,
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
    /// The statement that mends it; none where [`Schema::migrate`] does, because its migration was not run yet.
    pub fix: Option<String>,
}

impl fmt::Display for Drift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            None => write!(f, "{} is missing: expected {}", self.object, self.expected),
            Some(found) => write!(f, "{} is altered: expected {}, found {found}", self.object, self.expected),
        }
    }
}
