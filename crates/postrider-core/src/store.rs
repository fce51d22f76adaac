//! The interface between the engine and a database that holds messages.

use crate::{
    BoxError, ClaimedMessage, ConsumerName, Invalid, Lease, LeaseSettlement, Message, PauseRecord, QueueName,
    ScheduleName, TenantWeights, limits, timetable::ScheduleReading,
};
use async_trait::async_trait;
use std::{
    fmt::Debug,
    time::{Duration, SystemTime},
};

/// A database that holds messages: claim, renew, settle and prune.
///
/// ```text
///            stage                claim                 settle
///   producer ─────▶ pending ───────────────▶ leased ───────────────▶ done | scheduled | dead
///                      ▲    due rows, late       │
///                      │    commits, expired     │ lease expires, or Release
///                      └─────────────────────────┘
/// ```
///
/// The rules, which the store suite checks on every implementation:
///
/// - **The store's clock decides.** Due times and leases are computed and compared by the store.
/// - **One owner.** Every claim makes a fresh token. `renew` and `settle` change only rows that
///   still carry it, and return the leases that were lost.
/// - **No reaper.** A message whose lease has expired is claimable like any other due message.
/// - **All or nothing.** A `settle` that fails has changed nothing; one that succeeds has changed everything but the leases that
///   it returns as lost.
#[async_trait]
pub trait Store: Debug + Send + Sync + 'static {
    /// Leases up to `limit` due messages, in order, and counts a delivery on each. An empty result means that no message is due. On
    /// a queue that is fair to tenants, the result is shared among the tenants that have due messages, in the order of their turns.
    /// Nothing is claimed from a [paused](Self::paused) queue.
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error>;

    /// Extends leases to `lease_for` from now, and returns those that were already lost.
    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error>;

    /// Settles leases, with any mix of settlements, in one round trip, and returns those that were already lost: another owner has
    /// those messages, and the call changed nothing for them.
    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error>;

    /// Counts a delivery that is about to begin in isolation, see [`ClaimedMessage::isolated`]. Call it for a message that may be
    /// killing its processes, while nothing else of its queue is delivered in this process. Returns `false`, and changes nothing, when
    /// the lease was lost.
    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error>;

    /// Deletes rows past their retention, in bounded chunks. Call it again while [`PruneReport::more`] is true.
    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error>;

    /// The queues and destinations that [operators have paused](crate::inspect::Operate::pause), oldest pause first. Claims honour a
    /// paused queue within about a second in every process; a relay reads paused destinations here.
    async fn paused(&self) -> Result<Vec<PauseRecord>, Error>;

    /// Reads the state of a cron schedule (see [`timetable`](crate::timetable)). A schedule that is read for the first time begins
    /// now: missed ticks before that are not staged.
    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error>;

    /// Stages the messages of the tick of a schedule at `at`, and records it. Returns `false`, and changes nothing, when this tick or a
    /// later one was recorded before. Without messages it only records.
    ///
    /// # Errors
    /// When a message is invalid or the store fails. Then nothing was staged or recorded, unless the commit itself failed with an
    /// unknown outcome: a retry is safe either way.
    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error>;

    /// Checks that the database responds.
    async fn ping(&self) -> Result<(), Error>;
}

/// The queues to claim from, how many messages, and for how long.
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

    /// Sets the length of the leases.
    #[must_use]
    pub fn with_lease_for(mut self, lease_for: Duration) -> Self {
        self.lease_for = lease_for;
        self
    }

    /// Shares what is claimed from queues that are fair to their tenants by these weights; the default is equal shares.
    #[must_use]
    pub fn with_tenant_weights(mut self, tenant_weights: TenantWeights) -> Self {
        self.tenant_weights = tenant_weights;
        self
    }

    /// The queues, sorted and distinct.
    pub fn queues(&self) -> &[QueueName] {
        &self.queues
    }

    /// The largest number of messages to claim.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// The length of the leases.
    pub fn lease_for(&self) -> Duration {
        self.lease_for
    }

    /// The shares of tenants.
    pub fn tenant_weights(&self) -> &TenantWeights {
        &self.tenant_weights
    }

    /// Checks the request.
    ///
    /// # Errors
    /// When the lease is too short or too long, or a tenant's weight is out of range.
    pub fn check(&self) -> Result<(), Invalid> {
        self.tenant_weights.check()?;
        check_lease(self.lease_for)
    }
}

/// Checks the length of a lease: 10 ms to 24 hours.
///
/// # Errors
/// When the length is out of range.
pub fn check_lease(lease_for: Duration) -> Result<(), Invalid> {
    limits::lease_for(lease_for)
}

/// The rows to prune.
#[derive(Debug, Clone)]
pub struct PruneRequest {
    /// Dead letters that failed longer ago than this; `None` leaves them alone.
    pub dead_older_than: Option<Duration>,
    /// Deduplication records of the [inbox](crate::Inbox) older than this; `None` leaves them alone. A redelivered message whose record
    /// was pruned is handled again: keep records for longer than any redelivery window.
    pub inbox_older_than: Option<Duration>,
    /// Only the deduplication records of this consumer; `None` means all consumers.
    pub inbox_of: Option<ConsumerName>,
    /// The largest number of rows deleted in one call.
    pub limit: usize,
}

impl PruneRequest {
    /// Delivered messages past their retention, up to 10,000 rows in one call.
    pub fn new() -> Self {
        Self { dead_older_than: None, inbox_older_than: None, inbox_of: None, limit: 10_000 }
    }

    /// Also dead letters that failed longer ago than `age`.
    #[must_use]
    pub fn with_dead_older_than(mut self, age: Duration) -> Self {
        self.dead_older_than = Some(age);
        self
    }

    /// Also deduplication records older than `age`, of all consumers.
    #[must_use]
    pub fn with_inbox_older_than(mut self, age: Duration) -> Self {
        self.inbox_older_than = Some(age);
        self
    }

    /// Also deduplication records of this consumer older than `age`.
    #[must_use]
    pub fn with_inbox_of(mut self, consumer: ConsumerName, age: Duration) -> Self {
        self.inbox_of = Some(consumer);
        self.with_inbox_older_than(age)
    }

    /// Limits the rows deleted in one call.
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

/// The number of rows that were pruned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PruneReport {
    /// Archived messages.
    pub archived: u64,
    /// Dead letters.
    pub dead: u64,
    /// Deduplication records of the inbox.
    pub inbox: u64,
    /// Whether the limit was reached, so that more rows may be left.
    pub more: bool,
}

/// An error of a store, grouped by what the caller can do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The database cannot be reached or is overloaded: retry.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[source] BoxError),
    /// The tables do not match this version: run the migrations.
    #[error("the schema does not fit this version: {0}; run the migrations")]
    SchemaMismatch(String),
    /// The input breaks a rule: change it.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Anything else.
    #[error("the store failed: {0}")]
    Other(#[source] BoxError),
}

/// Another transaction holds a lock on a row that the statement needs, or both hold one that the other needs.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Contention(#[source] BoxError);

impl Error {
    /// The store is unavailable for this statement only: another transaction holds one of its rows. A smaller statement that does not
    /// touch that row succeeds.
    pub fn contention(source: impl Into<BoxError>) -> Self {
        Self::Unavailable(Box::new(Contention(source.into())))
    }

    /// Whether a row of the statement was locked by another transaction, see [`contention`](Self::contention).
    pub fn is_contention(&self) -> bool {
        matches!(self, Self::Unavailable(source) if source.is::<Contention>())
    }
}
