//! An in-memory queue that behaves like a broker's.

use postrider_core::{Incoming, LaneId};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// An in-memory queue, with any number of [sources](Self::source) that share its messages. Cheap to clone; clones are the same queue.
///
/// It counts deliveries, supports delayed nacks, and keeps the order of a key.
///
/// ```
/// # use postrider_core::{Ack, Incoming, Source};
/// # use postrider_transports::memory::MemoryQueue;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), postrider_core::SourceError> {
/// let orders = MemoryQueue::new("orders");
/// orders.put(Incoming::new("orders", "17"));
/// let source = orders.source();
/// let messages = source.receive(10).await?;
/// assert_eq!(messages[0].incoming.body, "17");
/// source.ack(&[(messages[0].ack_handle.clone(), Ack::Ack)]).await;
/// assert_eq!(orders.left(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryQueue {
    name: Arc<str>,
    state: Arc<Mutex<QueueState>>,
    pub(super) change: Arc<Notify>,
}

/// The messages of a queue, in the order of their arrival.
#[derive(Default)]
pub(super) struct QueueState {
    next: u64,
    pub(super) entries: BTreeMap<u64, QueueEntry>,
    pub(super) rejected: Vec<Incoming>,
    pub(super) consumers: u64,
    pub(super) failing_receives: usize,
    pub(super) failing_acks: usize,
}

pub(super) struct QueueEntry {
    pub(super) incoming: Incoming,
    pub(super) lane: Option<LaneId>,
    pub(super) deliveries: u32,
    pub(super) due_at: Option<Instant>,
    /// The consumer and delivery that it is in flight with, if it is.
    pub(super) holder: Option<Holder>,
}

/// The consumer that has an entry in flight, and the number of the delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) consumer: u64,
    pub(super) delivery: u32,
}

impl MemoryQueue {
    /// An empty queue.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), state: Arc::default(), change: Arc::default() }
    }

    /// The name of the queue.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Enqueues a message. [`Outgoing`](postrider_core::Outgoing) converts with `into`.
    pub fn put(&self, incoming: impl Into<Incoming>) {
        let mut incoming = incoming.into();
        incoming.origin = self.name.as_ref().to_owned();
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let lane = incoming.key.as_ref().map(LaneId::of);
        let entry = QueueEntry { incoming, lane, deliveries: 0, due_at: None, holder: None };
        state.entries.insert(number, entry);
        drop(state);
        self.change.notify_waiters();
    }

    /// A new source that receives from this queue.
    pub fn source(&self) -> super::MemorySource {
        let mut state = self.lock();
        state.consumers += 1;
        super::MemorySource::new(self.clone(), state.consumers)
    }

    /// The number of messages that are neither acked nor rejected, including those in flight.
    pub fn left(&self) -> usize {
        self.lock().entries.len()
    }

    /// The messages that were rejected so far.
    pub fn rejected(&self) -> Vec<Incoming> {
        self.lock().rejected.clone()
    }

    /// Makes the next `calls` of `receive` fail as if the connection were lost.
    pub fn fail_receives(&self, calls: usize) {
        self.lock().failing_receives = calls;
        self.change.notify_waiters();
    }

    /// Makes the next `calls` of `ack` fail as if the connection were lost.
    pub fn fail_acks(&self, calls: usize) {
        self.lock().failing_acks = calls;
    }

    /// Requeues all messages in flight, as a broker does that loses its connections: they are redelivered.
    pub fn requeue_in_flight(&self) {
        self.lock().entries.values_mut().for_each(|entry| entry.holder = None);
        self.change.notify_waiters();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueState {
    /// Takes up to `limit` entries for a consumer, and returns how long to wait for the next delayed one.
    pub(super) fn take(&mut self, consumer: u64, limit: usize, now: Instant) -> (Vec<u64>, Option<Duration>) {
        let (mut taken, mut blocked_lanes, mut wait) = (Vec::new(), HashSet::new(), None::<Duration>);
        for (number, entry) in &mut self.entries {
            if taken.len() == limit {
                break;
            }
            let is_blocked = entry.lane.is_some_and(|lane| blocked_lanes.contains(&lane));
            if let Some(left) = entry.due_at.map(|at| at.saturating_duration_since(now))
                && !left.is_zero()
            {
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
                // The entries behind it in its lane wait, too.
                blocked_lanes.extend(entry.lane);
                continue;
            }
            let is_in_flight = entry.holder.is_some();
            // Another consumer has an entry in front of it.
            if entry.holder.is_some_and(|holder| holder.consumer != consumer) {
                blocked_lanes.extend(entry.lane);
            }
            if is_in_flight || is_blocked {
                continue;
            }
            entry.deliveries += 1;
            entry.due_at = None;
            entry.holder = Some(Holder { consumer, delivery: entry.deliveries });
            taken.push(*number);
        }
        (taken, wait)
    }

    /// The entry, if it is still in flight with this holder.
    pub(super) fn in_flight(&mut self, number: u64, holder: Holder) -> Option<&mut QueueEntry> {
        self.entries.get_mut(&number).filter(|entry| entry.holder == Some(holder))
    }
}

impl fmt::Debug for QueueState {
    /// Omits payloads: they may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueState").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}
