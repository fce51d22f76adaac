//! Messages wait in this process's memory: for tests, for examples, and as the plainest statement of what every store does.
//!
//! **The states.** A message is in exactly one of four rooms of its queue: `ready` (may run now, leased or not), `later` (a
//! timer or a retry that waits), `dead`, `archive`. On a queue ordered by key, a lane per live key says whether the key
//! is free, leased or blocked; its messages stay where they are while it is.
//!
//! **Who is authoritative.** One mutex guards all rooms, and every operation takes it once: that is the atomicity. What a
//! [`Transaction`] stages is a draft of its own until it commits; until then no claim sees it. The [clock](ManualClock)
//! is the store's, and is read under the mutex.
//!
//! **Transactions side by side.** They may overlap and commit in any order. Staging checks identities and timers against
//! what is committed and against the transaction's own draft, and commits check once more: where PostgreSQL would let the
//! second transaction wait for the first and then tell it, the second one's message is dropped here without a word (or
//! extends the living timer, if that is what it is for). A timer that an open transaction cancels or extends is locked,
//! as its row would be: claims step over it. What it has admitted is held until it ends, and others that admit the same wait
//! (`inbox.rs`).
//!
//! **On failure.** Nothing here outlives the process. A panic while the mutex is held cannot leave a message in two rooms,
//! since moves take before they put; so a poisoned mutex is used as it is.
//!
//! **Why it is not simpler.** One list with a date and a lease per message would do for unordered queues. It would have no
//! rooms for operators to look into, and no answer to what a blocked key does to the messages behind it.

mod claim;
mod clock;
mod clue;
mod draft;
mod follow;
mod follow_ups;
mod inbox;
mod inspect;
mod lanes;
mod ledger;
mod operate;
mod queue;
mod rooms;
mod row;
mod schema;
mod selection;
mod settle;
mod timetable;
mod transaction;
mod wake;

pub use clock::ManualClock;
pub use ledger::MemoryLedger;
pub use transaction::Transaction;

use async_trait::async_trait;
use clock::Clock;
use postrider_core::{
    ClaimRequest, Claimed, Error, Lease, Limits, Message, Outbox, Paused, PruneRequest, Pruned, QueueName,
    Settle, Staged, Store, TimerName, store::check_lease, trace, transact::Transact,
};
use rooms::Rooms;
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::sync::Notify;
use wake::Signals;

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
    rooms: Mutex<Rooms>,
    clock: Clock,
    signals: Signals,
    /// A transaction has let go of what it had admitted, or kept it.
    ended: Notify,
}

impl MemoryStore {
    /// An empty store whose time follows the wall clock.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store whose time is what `clock` shows.
    pub fn with_clock(clock: ManualClock) -> Self {
        let shared = Shared { clock: Clock::Manual(clock), ..Shared::default() };
        Self { shared: Arc::new(shared), limits: Limits::default() }
    }

    /// Checks against these size limits what is staged through this handle.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Begins a transaction. Nothing that is staged in it exists until it commits.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.clone())
    }

    /// The store's time.
    pub fn now(&self) -> SystemTime {
        self.shared.clock.now()
    }

    /// Lets so much of the store's time pass at once: every lease and due time comes closer.
    pub fn advance(&self, by: Duration) {
        self.shared.clock.advance(by);
    }

    /// Makes writing dead letters fail, or work again, for tests of what happens then.
    pub fn break_dead_letters(&self, broken: bool) {
        self.lock().dead_letters_broken = broken;
    }

    fn lock(&self) -> MutexGuard<'_, Rooms> {
        self.shared.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rooms and the time. The clock is read under the mutex, so that operations happen in the order of their times.
    fn enter(&self) -> (MutexGuard<'_, Rooms>, SystemTime) {
        let rooms = self.lock();
        let now = self.now();
        (rooms, now)
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl fmt::Debug for MemoryStore {
    /// Shows no messages: they may carry personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        request.check()?;
        let (mut rooms, now) = self.enter();
        Ok(rooms.claim(request, now))
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        check_lease(lease_for)?;
        let (mut rooms, now) = self.enter();
        Ok(rooms.renew(leases, lease_for, now))
    }

    async fn settle(&self, settlements: &[Settle]) -> Result<Vec<Lease>, Error> {
        self.limits.check(&Settle::staged_by(settlements, &[]))?;
        let lost = {
            let (mut rooms, now) = self.enter();
            rooms.settle(settlements, now)?
        };
        // Nothing can fail in between. For a moment somebody who looks sees neither, as with a commit that is under way.
        let messages = Settle::staged_by(settlements, &lost);
        if !messages.is_empty() {
            let mut tx = self.begin();
            tx.stage_all(&messages);
            tx.commit();
        }
        Ok(lost)
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, Error> {
        let (mut rooms, now) = self.enter();
        Ok(rooms.prune(request, now))
    }

    async fn paused(&self) -> Result<Vec<Paused>, Error> {
        Ok(self.lock().paused.clone())
    }

    async fn ping(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl Outbox<Transaction> for MemoryStore {
    async fn stage_all(&self, tx: &mut Transaction, messages: &[Message]) -> Result<Staged, Error> {
        tx.check_store(self)?;
        self.limits.check(messages)?;
        Ok(tx.stage_all(&trace::stamped(messages)))
    }

    async fn cancel_timer(
        &self,
        tx: &mut Transaction,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        tx.check_store(self)?;
        Ok(tx.cancel_timer(queue, timer))
    }
}

impl Transact for MemoryStore {
    type Tx = Transaction;

    async fn begin(&self) -> Result<Transaction, Error> {
        Ok(Self::begin(self))
    }

    async fn settle_in(&self, tx: &mut Transaction, settle: &Settle) -> Result<bool, Error> {
        tx.check_store(self)?;
        let is_held = self.lock().holds(&settle.lease);
        tx.settle(settle.clone());
        Ok(is_held)
    }

    async fn commit(&self, tx: Transaction) -> Result<(), Error> {
        tx.commit_settled()
    }

    async fn rollback(&self, tx: Transaction) -> Result<(), Error> {
        tx.rollback();
        Ok(())
    }
}
