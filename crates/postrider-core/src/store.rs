//! The seam between the engine and the place where messages wait.

use crate::{Claimed, ConsumerName, Invalid, Lease, Paused, QueueName, Settle, TenantWeights, limits};
use async_trait::async_trait;
use std::{fmt::Debug, time::Duration};

/// Where messages wait: what the engine holds.
///
/// ```text
///            stage                claim                 settle
///   producer ─────▶ pending ───────────────▶ leased ───────────────▶ done | waiting | dead
///                      ▲    due rows, late       │
///                      │    commits, lapsed      │ lease lapses, or Release
///                      └─────────────────────────┘
/// ```
///
/// The rules, which the store suite checks on every implementation:
///
/// - **The store's clock decides.** Due times and leases are computed and compared by the store.
/// - **One owner.** Every claim makes a fresh token. `renew` and `settle` change only what still carries it, and
///   answer with what does not.
/// - **No reaper.** A lapsed lease is claimable like any other due message.
/// - **All or nothing.** A `settle` that fails has changed nothing; one that answers has changed everything but what
///   it names as lost.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Leases up to `limit` due messages, in order, and counts a delivery on each. An empty answer means that nothing
    /// is due now. Where tenants take turns, each answer is shared out among those that have something waiting, and comes in
    /// the order of their turns. Of a queue that is [paused](Self::paused) nothing is claimed.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error>;

    /// Extends leases to `lease_for` from now, and answers with those that were already lost.
    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error>;

    /// Ends claims, whatever the mix, in one round trip, and answers with those that were already lost: they belong to
    /// somebody else, and nothing was changed for them.
    async fn settle(&self, settlements: &[Settle]) -> Result<Vec<Lease>, Error>;

    /// Removes what retention no longer keeps, in bounded chunks. Ask again while [`Pruned::more`] says so.
    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, Error>;

    /// What [operators have paused](crate::inspect::Operate::pause), longest first. Claims keep to it by themselves within about a
    /// second, in every process; whoever sends to a destination asks here.
    async fn paused(&self) -> Result<Vec<Paused>, Error>;

    /// Answers if the store does.
    async fn ping(&self) -> Result<(), Error>;
}

/// What to claim.
#[derive(Debug, Clone)]
pub struct ClaimRequest {
    queues: Vec<QueueName>,
    limit: usize,
    lease_for: Duration,
    tenant_weights: TenantWeights,
}

impl ClaimRequest {
    /// Up to `limit` messages of one queue, under a lease of a minute.
    pub fn new(queue: QueueName, limit: usize) -> Self {
        Self::of([queue], limit)
    }

    /// Up to `limit` messages in all of several queues. A queue that is named twice counts once.
    pub fn of(queues: impl IntoIterator<Item = QueueName>, limit: usize) -> Self {
        let mut queues: Vec<_> = queues.into_iter().collect();
        queues.sort_unstable();
        queues.dedup();
        Self { queues, limit, lease_for: Duration::from_secs(60), tenant_weights: TenantWeights::default() }
    }

    /// Leases for so long.
    #[must_use]
    pub fn with_lease_for(mut self, lease_for: Duration) -> Self {
        self.lease_for = lease_for;
        self
    }

    /// Shares what is claimed from queues that are fair to their tenants by these weights; equally unless said otherwise.
    #[must_use]
    pub fn with_tenant_weights(mut self, tenant_weights: TenantWeights) -> Self {
        self.tenant_weights = tenant_weights;
        self
    }

    /// The queues, sorted and distinct.
    pub fn queues(&self) -> &[QueueName] {
        &self.queues
    }

    /// How many messages at the most.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// How long they are leased.
    pub fn lease_for(&self) -> Duration {
        self.lease_for
    }

    /// The shares of tenants.
    pub fn tenant_weights(&self) -> &TenantWeights {
        &self.tenant_weights
    }

    /// Whether the request can be answered at all.
    ///
    /// # Errors
    /// When the lease is too short or too long to be kept, or a tenant's weight cannot be.
    pub fn check(&self) -> Result<(), Invalid> {
        self.tenant_weights.check()?;
        check_lease(self.lease_for)
    }
}

/// Whether a lease of this length can be kept: between 10 ms and 24 hours.
///
/// # Errors
/// When it cannot.
pub fn check_lease(lease_for: Duration) -> Result<(), Invalid> {
    limits::lease_for(lease_for)
}

/// What to remove.
#[derive(Debug, Clone)]
pub struct PruneRequest {
    /// Dead letters that failed longer ago than this; `None` leaves them alone.
    pub dead_older_than: Option<Duration>,
    /// Marks of the [inbox](crate::Inbox) that were made longer ago than this; `None` leaves them alone. A message whose mark is
    /// gone is new when it arrives again: keep marks for longer than anybody may send it again.
    pub inbox_older_than: Option<Duration>,
    /// Only the marks of this consumer; of all if `None`.
    pub inbox_of: Option<ConsumerName>,
    /// How many rows at the most in one call.
    pub limit: usize,
}

impl PruneRequest {
    /// What the archive no longer keeps, up to 10,000 rows in one call.
    pub fn new() -> Self {
        Self { dead_older_than: None, inbox_older_than: None, inbox_of: None, limit: 10_000 }
    }

    /// Also dead letters that failed longer ago than `age`.
    #[must_use]
    pub fn with_dead_older_than(mut self, age: Duration) -> Self {
        self.dead_older_than = Some(age);
        self
    }

    /// Also marks of the inbox that were made longer ago than `age`, whoever made them.
    #[must_use]
    pub fn with_inbox_older_than(mut self, age: Duration) -> Self {
        self.inbox_older_than = Some(age);
        self
    }

    /// Also marks of the inbox that this consumer made longer ago than `age`, and nobody else's.
    #[must_use]
    pub fn with_inbox_of(mut self, consumer: ConsumerName, age: Duration) -> Self {
        self.inbox_of = Some(consumer);
        self.with_inbox_older_than(age)
    }

    /// Up to so many rows in one call.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for PruneRequest {
    fn default() -> Self {
        Self::new()
    }
}

/// What was removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Archived messages.
    pub archived: u64,
    /// Dead letters.
    pub dead: u64,
    /// Marks of the inbox.
    pub inbox: u64,
    /// Whether the limit was reached, so that asking again is worth while.
    pub more: bool,
}

/// What went wrong in a store, by what the caller can do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store cannot be reached or is overloaded: try again.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[source] Source),
    /// The tables are not what this version needs: migrate.
    #[error("the schema does not fit this version: {0}; run the migrations")]
    SchemaMismatch(String),
    /// The input breaks a rule: change it.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Anything else.
    #[error("the store failed: {0}")]
    Other(#[source] Source),
}

/// The cause of an error, without its driver's type.
pub type Source = Box<dyn std::error::Error + Send + Sync>;
