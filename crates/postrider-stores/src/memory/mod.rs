//! The memory store keeps messages in this process: for tests, for examples, and as the plainest statement of what every store does.
//!
//! **The tables.** A message is in exactly one of four tables of its queue: `ready` (may run now, leased or not), `scheduled` (a
//! timer or a retry that is not due yet), `dead`, `archive`. On a queue ordered by key, each key with messages has a lane, which is
//! free, leased or blocked; the messages of a leased or blocked lane stay in `ready`.
//!
//! **The source of truth.** One mutex guards all tables, and every operation takes it once: that makes it atomic. The messages that a
//! [`MemoryTransaction`] stages are uncommitted changes until it commits; until then no claim sees them. The [clock](ManualClock)
//! belongs to the store, and is read under the mutex.
//!
//! **Concurrent transactions** may overlap and commit in any order. Staging checks ids and timers against the committed messages and
//! against the transaction's own changes, and the commit checks once more: PostgreSQL would let the second transaction wait for the
//! first and then report the conflict; here the second one's message is dropped silently (or extends the active timer, if it was
//! staged for that). A timer that an open transaction cancels or extends is locked, as its row would be: claims skip it. Messages
//! that a transaction has admitted are locked until it ends, and other transactions that admit the same messages wait (`inbox.rs`).
//!
//! **On failure.** Nothing here outlives the process. A panic while the mutex is held cannot leave a message in two tables,
//! because a move removes before it inserts; so a poisoned mutex is used as it is.
//!
//! **Why it is not simpler.** One list with a due time and a lease per message would do for unordered queues. It would have no
//! states for operators to list, and no rule for the messages behind a blocked key.

mod changes;
mod claim;
mod clock;
mod find;
mod follow_up_store;
mod follow_ups;
mod inbox;
mod inspect;
mod lanes;
mod ledger;
mod listener;
mod notifier;
mod operate;
mod queue;
mod row;
mod schema;
mod selection;
mod settle;
mod tables;
mod timetable;
mod transaction;
mod tx_backend;

pub use clock::ManualClock;
pub use ledger::MemoryLedger;
pub use transaction::MemoryTransaction;

use async_trait::async_trait;
use clock::StoreClock;
use notifier::Signals;
use postrider_core::{
    ClaimRequest, ClaimedMessage, Error, Lease, LeaseSettlement, Limits, Message, PauseRecord, PruneReport,
    PruneRequest, ScheduleName, Store, store::check_lease, timetable::ScheduleReading,
};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tables::Tables;
use tokio::sync::Notify;

/// A store in memory. Clones are handles to the same messages.
///
/// ```
/// # use postrider_core::{ClaimRequest, Message, OutboxExt, Store};
/// # use postrider_stores::memory::MemoryStore;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
///
/// let mut tx = store.begin();
/// store.stage(&mut tx, Message::builder("orders").json(&17)).await?;
/// tx.commit();
///
/// let claimed = store.claim(&ClaimRequest::new("orders".parse()?, 10)).await?;
/// let lost = store.settle(&[claimed[0].lease.done()]).await?;
/// assert!(lost.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct MemoryStore {
    shared: Arc<Shared>,
    limits: Limits,
}

#[derive(Default)]
struct Shared {
    tables: Mutex<Tables>,
    clock: StoreClock,
    signals: Signals,
    /// Notified when a transaction that had locks or admitted messages has ended.
    ended: Notify,
}

impl MemoryStore {
    /// An empty store whose time follows the wall clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store whose time is that of `clock`.
    pub fn with_clock(clock: ManualClock) -> Self {
        let shared = Shared { clock: StoreClock::Manual(clock), ..Shared::default() };
        Self { shared: Arc::new(shared), limits: Limits::default() }
    }

    /// The size limits for messages staged through this handle.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The outbox: the store itself. For code that moves between stores.
    pub fn outbox(&self) -> Self {
        self.clone()
    }

    /// The inbox: the store itself.
    pub fn inbox(&self) -> Self {
        self.clone()
    }

    /// The transactions that handlers run in: the store itself, without a pool.
    pub fn transactions(&self) -> Self {
        self.clone()
    }

    /// Does nothing: there is no connection to close.
    #[expect(clippy::unused_async, reason = "the same method as in the other stores")]
    pub async fn close(&self) {}

    /// Begins a transaction. Its messages become visible when it commits.
    pub fn begin(&self) -> MemoryTransaction {
        MemoryTransaction::new(self.clone())
    }

    /// The store's time.
    pub fn now(&self) -> SystemTime {
        self.shared.clock.now()
    }

    /// Moves the store's time forward: leases expire and messages come due.
    pub fn advance(&self, by: Duration) {
        self.shared.clock.advance(by);
    }

    /// Makes writes of dead letters fail or succeed again, for tests of that failure.
    pub fn break_dead_letters(&self, broken: bool) {
        self.lock().dead_letters_broken = broken;
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.shared.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables and the time. The clock is read under the mutex, so that operations happen in the order of their times.
    fn enter(&self) -> (MutexGuard<'_, Tables>, SystemTime) {
        let tables = self.lock();
        let now = self.now();
        (tables, now)
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl fmt::Debug for MemoryStore {
    /// Shows no messages: they may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        request.check()?;
        let (mut tables, now) = self.enter();
        Ok(tables.claim(request, now))
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        check_lease(lease_for)?;
        let (mut tables, now) = self.enter();
        Ok(tables.renew(leases, lease_for, now))
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        self.limits.check(&LeaseSettlement::staged_by(settlements, &[]))?;
        let lost = {
            let (mut tables, now) = self.enter();
            tables.settle(settlements, now)?
        };
        // Nothing can fail in between. For a moment a reader sees neither message, as during a commit.
        let messages = LeaseSettlement::staged_by(settlements, &lost);
        if !messages.is_empty() {
            let mut tx = self.begin();
            tx.stage_all(&messages);
            tx.commit();
        }
        Ok(lost)
    }

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        let (mut tables, _) = self.enter();
        Ok(tables.count_isolated(lease))
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        let (mut tables, now) = self.enter();
        Ok(tables.prune(request, now))
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        Ok(self.lock().paused.clone())
    }

    async fn ping(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        Self::read_schedule(self, schedule)
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        Self::tick(self, schedule, at, messages).await
    }
}
