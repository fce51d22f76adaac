//! The in-memory store that tests run on.

use crate::{Fault, StoreCall, claims::Claims, faults::FaultPlan, source::TestQueue};
use postrider_core::{
    Codec, CodecError, Error, Event, Message, QueueName, State,
    inspect::{Inspect, ListRequest, StateFilter},
};
use postrider_stores::memory::{ManualClock, MemoryStore, MemoryTransaction};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

/// An in-memory store with a virtual clock and fault injection. Clones are handles to the same messages.
///
/// The clock moves only when the test moves it. The store implements every trait that producers, workers and consumers need:
/// pass it in place of the application's store, and check its messages with [`Assert`](crate::Assert).
///
/// ```
/// # use postrider_core::{Event, Json, OutboxExt};
/// # use postrider_testing::{Assert, TestStore};
/// # #[derive(Debug, serde::Serialize, serde::Deserialize)]
/// # struct OrderPlaced { order: u64 }
/// # impl Event for OrderPlaced {
/// #     const TYPE: &'static str = "order.placed";
/// #     const QUEUE: &'static str = "orders";
/// #     type Codec = Json;
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = TestStore::new();
/// let mut tx = store.begin();
/// store.stage(&mut tx, &OrderPlaced { order: 17 }).await?;
/// tx.commit();
/// store.assert_staged::<OrderPlaced>(1).await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TestStore {
    pub(crate) memory: MemoryStore,
    pub(crate) state: Arc<Mutex<TestState>>,
}

#[derive(Debug, Default)]
pub(crate) struct TestState {
    pub(crate) faults: FaultPlan,
    pub(crate) claims: Claims,
    /// Whether some worker has fault injection.
    pub(crate) has_injection: bool,
    /// The sources on the clock of this store.
    pub(crate) sources: Vec<Arc<TestQueue>>,
}

impl TestStore {
    /// Creates an empty store whose clock starts at the current time.
    pub fn new() -> Self {
        Self::at(SystemTime::now())
    }

    /// Creates an empty store whose clock starts at `now`.
    pub fn at(now: SystemTime) -> Self {
        Self { memory: MemoryStore::with_clock(ManualClock::at(now)), state: Arc::default() }
    }

    /// Begins a transaction. Messages staged in it are visible once it commits.
    pub fn begin(&self) -> MemoryTransaction {
        self.memory.begin()
    }

    /// The time of the virtual clock.
    pub fn now(&self) -> SystemTime {
        self.memory.now()
    }

    /// Moves the clock forward. Timers and retries can become due, and leases can expire.
    pub fn advance(&self, by: Duration) {
        self.memory.advance(by);
        self.lock().sources.iter().for_each(|queue| queue.wake());
    }

    /// The time until the next timer, retry or redelivery of a [source](Self::source) is due or a lease expires; `None` when there is
    /// none.
    ///
    /// # Errors
    /// Never in practice: injected faults do not affect inspection.
    pub async fn next_due(&self) -> Result<Option<Duration>, Error> {
        self.reconcile().await?;
        let now = self.now();
        let mut times: Vec<SystemTime> = self.lock().claims.iter().map(|(_, claim)| claim.until).collect();
        times.extend(self.lock().sources.iter().flat_map(|queue| queue.due_times()));
        for queue in self.memory.counts().await?.into_keys() {
            let scheduled = ListRequest::new(queue.clone(), StateFilter::Scheduled).with_limit(usize::MAX);
            times.extend(self.memory.list(&scheduled).await?.entries.iter().map(|entry| entry.at));
            let blocked = self.memory.blocked_keys(&queue, usize::MAX).await?;
            times.extend(blocked.iter().filter_map(|key| key.due_at));
        }
        Ok(times
            .into_iter()
            .filter_map(|at| at.duration_since(now).ok())
            .filter(|wait| !wait.is_zero())
            .min())
    }

    /// Moves the clock to the time when the next timer, retry or redelivery is due or a lease expires, and returns by how much it moved.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    pub async fn advance_to_next_due(&self) -> Result<Option<Duration>, Error> {
        let wait = self.next_due().await?;
        self.advance(wait.unwrap_or_default());
        Ok(wait)
    }

    /// Plans a fault for the `nth` delivery of an event of this type, counted from now and with retries; 1 is the next delivery.
    pub fn fault_on<E: Event>(&self, nth: u32, fault: Fault) {
        self.lock().faults.add_for::<E>(nth, fault);
    }

    /// Plans a fault for the `nth` delivery of any message, counted from now and with retries; 1 is the next delivery.
    pub fn fault_on_any(&self, nth: u32, fault: Fault) {
        self.lock().faults.add(None, nth, fault);
    }

    /// Makes the next `times` calls of this kind fail with [`Error::Unavailable`].
    pub fn fail(&self, call: StoreCall, times: u32) {
        self.lock().faults.fail(Some(call), times);
    }

    /// Makes the next `times` calls of any kind fail with [`Error::Unavailable`].
    pub fn unavailable(&self, times: u32) {
        self.lock().faults.fail(None, times);
    }

    /// Makes writes of dead letters fail (`true`) or succeed again (`false`).
    ///
    /// A worker retries the write until its lease expires by the process's clock: use a short lease, or tokio's paused time.
    pub fn break_dead_letters(&self, broken: bool) {
        self.memory.break_dead_letters(broken);
    }

    /// Every message delivered so far, in the order of settlement.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    pub async fn deliveries(&self) -> Result<Vec<Message>, Error> {
        self.reconcile().await?;
        Ok(self.lock().claims.delivered().to_vec())
    }

    /// The events of one type delivered so far, in the order of settlement.
    ///
    /// # Errors
    /// When one of them cannot be decoded.
    pub async fn delivered<E: Event>(&self) -> Result<Vec<E>, Error> {
        let unreadable = |error: CodecError| Error::Other(error.into());
        let messages = self.deliveries().await?;
        let of_type = messages.iter().filter(|message| is_event::<E>(message));
        of_type.map(|message| E::Codec::decode(message.payload()).map_err(unreadable)).collect()
    }

    /// Records the claims that were settled in a transaction which has committed.
    async fn reconcile(&self) -> Result<(), Error> {
        let queue_of = |claim: &crate::claims::Claim| {
            claim.settled_in_transaction.then(|| claim.message.queue().clone())
        };
        let settled: Vec<(_, QueueName)> = {
            let state = self.lock();
            state.claims.iter().filter_map(|(id, claim)| Some((id, queue_of(claim)?))).collect()
        };
        for (id, queue) in settled {
            if self.memory.get(&queue, id).await?.is_none_or(|entry| entry.state == State::Done) {
                self.lock().claims.end(id, true);
            }
        }
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, TestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn is_event<E: Event>(message: &Message) -> bool {
    message.event_type().is_some_and(|event_type| event_type.as_str() == E::TYPE)
}

impl Default for TestStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestStore").finish_non_exhaustive()
    }
}
