//! Tables, migrations and queue declarations of a store.

use crate::{CheckupRequest, Error, Finding, QueueName, QueuePolicy};
use async_trait::async_trait;
use std::{
    fmt::{self, Debug},
    time::SystemTime,
};

/// A store's tables, the queues declared in them, and checks of both.
#[async_trait]
pub trait Schema: Debug + Send + Sync + 'static {
    /// Runs the pending migrations. Safe to call from many processes at once, and when nothing is pending.
    async fn migrate(&self) -> Result<(), Error>;

    /// The applied and pending migrations, from the version table that [`migrate`](Self::migrate) writes. Tables created from the
    /// [printed](Self::print) statements have none.
    async fn migrations(&self) -> Result<Migrations, Error>;

    /// Reports every object that is missing or altered. Changes nothing, and ignores other objects.
    async fn validate(&self) -> Result<Vec<Drift>, Error>;

    /// The statements that [`migrate`](Self::migrate) would run on an empty database, for teams with a migration tool of
    /// their own.
    fn print(&self) -> String;

    /// Declares the policy of a queue. An undeclared queue is created on first use, with the default policy. The ordering of a queue
    /// can change only while the queue is empty; other processes may apply the old policy for about a second, so stop the workers of a
    /// queue while its ordering changes. Fairness between tenants can be turned on and off at any time.
    async fn declare(&self, queue: &QueueName, policy: &QueuePolicy) -> Result<(), Error>;

    /// Checks the server or file of the store, its settings, its connections, and conditions that slow it down. Reports conditions that
    /// lose messages, delay them or make calls slower, each with its fix. Changes nothing. An empty list means that all is well. A
    /// check that cannot be made is a finding, too, as long as others can.
    ///
    /// # Errors
    /// When no check can be made.
    async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error>;
}

/// The applied and pending migrations of a store.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migrations {
    /// Applied migrations, newest last. A newer version of Postrider may have applied some that this one does not know.
    pub applied: Vec<AppliedMigration>,
    /// Migrations that [`Schema::migrate`] would run.
    pub pending: Vec<PendingMigration>,
    /// The number of the newest migration that this version knows; 0 for a store without tables.
    pub needed: i64,
}

/// An applied migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedMigration {
    /// Its number.
    pub number: i64,
    /// Its name.
    pub name: String,
    /// The time of its run, by the database's clock.
    pub at: SystemTime,
}

/// A pending migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingMigration {
    /// Its number.
    pub number: i64,
    /// Its name.
    pub name: String,
}

/// A difference between the tables and what this version needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Drift {
    /// The object, such as `index ready_key`.
    pub object: String,
    /// The expected definition.
    pub expected: String,
    /// The actual definition; `None` for a missing object.
    pub found: Option<String>,
    /// The statement that fixes it; `None` where a pending migration does.
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
