//! The store that tests run on.

use crate::{Call, Fault, claims::Claims, script::Script};
use postrider_core::{
    Codec, CodecError, Error, Event, Message, QueueName, State,
    inspect::{Inspect, ListRequest, Room},
};
use postrider_stores::memory::{ManualClock, MemoryStore, Transaction};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

/// A store in memory whose clock stands still until it is moved, and in which things go wrong when they are asked to. Clones are
/// handles to the same messages.
///
/// It is everything that a worker and its handlers need of a store: give it where the application gives its own. What it
/// holds is asserted with [`Assert`](crate::Assert).
#[derive(Clone)]
pub struct TestStore {
    pub(crate) memory: MemoryStore,
    pub(crate) state: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) script: Script,
    pub(crate) claims: Claims,
    /// Whether some worker knows of the faults.
    pub(crate) is_rehearsed: bool,
}

impl TestStore {
    /// An empty store. Its clock shows the time of this call.
    pub fn new() -> Self {
        Self::at(SystemTime::now())
    }

    /// An empty store. Its clock shows `now`.
    pub fn at(now: SystemTime) -> Self {
        Self { memory: MemoryStore::with_clock(ManualClock::at(now)), state: Arc::default() }
    }

    /// Begins a transaction. Nothing that is staged in it exists until it commits.
    pub fn begin(&self) -> Transaction {
        self.memory.begin()
    }

    /// What the clock shows.
    pub fn now(&self) -> SystemTime {
        self.memory.now()
    }

    /// Moves the clock ahead: timers, retries and the ends of leases come closer.
    pub fn advance(&self, by: Duration) {
        self.memory.advance(by);
    }

    /// How long until the next timer or retry comes due, or a lease lapses; `None` when nothing waits for its time.
    ///
    /// # Errors
    /// Never in practice: nothing here goes wrong unless it is asked to, and looking never is.
    pub async fn next_due(&self) -> Result<Option<Duration>, Error> {
        self.reconcile().await?;
        let now = self.now();
        let mut times: Vec<SystemTime> = self.lock().claims.iter().map(|(_, claim)| claim.until).collect();
        for queue in self.memory.counts().await?.into_keys() {
            let later = ListRequest::new(queue.clone(), Room::Later).with_limit(usize::MAX);
            times.extend(self.memory.list(&later).await?.entries.iter().map(|entry| entry.at));
            let blocked = self.memory.blocked_keys(&queue, usize::MAX).await?;
            times.extend(blocked.iter().filter_map(|key| key.due_at));
        }
        Ok(times
            .into_iter()
            .filter_map(|at| at.duration_since(now).ok())
            .filter(|wait| !wait.is_zero())
            .min())
    }

    /// Moves the clock to when the next timer or retry comes due, or a lease lapses, and says how far that was.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    pub async fn advance_to_next_due(&self) -> Result<Option<Duration>, Error> {
        let wait = self.next_due().await?;
        self.advance(wait.unwrap_or_default());
        Ok(wait)
    }

    /// Lets a fault strike the `nth` delivery of an event of this type from now on, retries included; 1 is the next one.
    pub fn fault_on<E: Event>(&self, nth: u32, fault: Fault) {
        self.lock().script.plan_for::<E>(nth, fault);
    }

    /// Lets a fault strike the `nth` delivery from now on, whatever it is; 1 is the next one.
    pub fn fault_on_any(&self, nth: u32, fault: Fault) {
        self.lock().script.plan(None, nth, fault);
    }

    /// Makes the store unavailable for so many calls of this kind, from the next one on.
    pub fn fail(&self, call: Call, times: u32) {
        self.lock().script.fail(Some(call), times);
    }

    /// Makes the store unavailable for so many calls, whatever they are, from the next one on.
    pub fn unavailable(&self, times: u32) {
        self.lock().script.fail(None, times);
    }

    /// Makes writing dead letters fail, or work again. A worker tries until its lease is over, by the process's clock: use a
    /// short lease, or tokio's paused time.
    pub fn break_dead_letters(&self, broken: bool) {
        self.memory.break_dead_letters(broken);
    }

    /// Every message that was delivered so far, in the order of settlement.
    ///
    /// # Errors
    /// As [`next_due`](Self::next_due).
    pub async fn deliveries(&self) -> Result<Vec<Message>, Error> {
        self.reconcile().await?;
        Ok(self.lock().claims.delivered().to_vec())
    }

    /// The events of one type that were delivered so far.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub async fn delivered<E: Event>(&self) -> Result<Vec<E>, Error> {
        let unreadable = |error: CodecError| Error::Other(error.into());
        let messages = self.deliveries().await?;
        let of_type = messages.iter().filter(|message| is_of::<E>(message));
        of_type.map(|message| E::Codec::decode(message.payload()).map_err(unreadable)).collect()
    }

    /// Notes which claims have ended in transactions that committed.
    async fn reconcile(&self) -> Result<(), Error> {
        let ending = |claim: &crate::claims::Claim| claim.ends.then(|| claim.message.queue().clone());
        let ending: Vec<(_, QueueName)> = {
            let state = self.lock();
            state.claims.iter().filter_map(|(id, claim)| Some((id, ending(claim)?))).collect()
        };
        for (id, queue) in ending {
            if self.memory.get(&queue, id).await?.is_none_or(|entry| entry.state == State::Done) {
                self.lock().claims.end(id, true);
            }
        }
        Ok(())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn is_of<E: Event>(message: &Message) -> bool {
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
