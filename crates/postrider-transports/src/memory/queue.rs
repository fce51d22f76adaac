//! A queue that is in memory, as a broker would keep it.

use postrider_core::{Incoming, Lane};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// A queue in memory, with any number of [sources](Self::source) that share what is in it. Cheap to clone; clones are the same queue.
///
/// It counts deliveries, keeps delays, and keeps the order of a key.
///
/// ```
/// # use postrider_core::{Answer, Incoming, Source};
/// # use postrider_transports::memory::MemoryQueue;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), postrider_core::SourceError> {
/// let orders = MemoryQueue::new("orders");
/// orders.put(Incoming::new("orders", "17"));
/// let source = orders.source();
/// let parcels = source.receive(10).await?;
/// assert_eq!(parcels[0].incoming.body, "17");
/// source.answer(&[(parcels[0].ticket.clone(), Answer::Done)]).await;
/// assert_eq!(orders.left(), 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryQueue {
    name: Arc<str>,
    shelf: Arc<Mutex<Shelf>>,
    pub(super) change: Arc<Notify>,
}

/// What is there, in the order in which it came.
#[derive(Default)]
pub(super) struct Shelf {
    next: u64,
    pub(super) entries: BTreeMap<u64, Entry>,
    pub(super) refused: Vec<Incoming>,
    pub(super) consumers: u64,
    pub(super) failing_receives: usize,
    pub(super) failing_answers: usize,
}

pub(super) struct Entry {
    pub(super) incoming: Incoming,
    pub(super) lane: Option<Lane>,
    pub(super) deliveries: u32,
    pub(super) due_at: Option<Instant>,
    /// Which delivery it is in hand under, if it is.
    pub(super) holder: Option<Holder>,
}

/// Who has an entry, and by which of its deliveries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) consumer: u64,
    pub(super) delivery: u32,
}

impl MemoryQueue {
    /// An empty queue.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), shelf: Arc::default(), change: Arc::default() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts a message into it. [`Outgoing`](postrider_core::Outgoing) becomes one by `into`.
    pub fn put(&self, incoming: impl Into<Incoming>) {
        let mut incoming = incoming.into();
        incoming.origin = self.name.as_ref().to_owned();
        let mut shelf = self.lock();
        let number = shelf.next;
        shelf.next += 1;
        let lane = incoming.key.as_ref().map(Lane::of);
        let entry = Entry { incoming, lane, deliveries: 0, due_at: None, holder: None };
        shelf.entries.insert(number, entry);
        drop(shelf);
        self.change.notify_waiters();
    }

    /// A consumer of it.
    pub fn source(&self) -> super::MemorySource {
        let mut shelf = self.lock();
        shelf.consumers += 1;
        super::MemorySource::new(self.clone(), shelf.consumers)
    }

    /// How many messages are neither done nor refused, those in hand included.
    pub fn left(&self) -> usize {
        self.lock().entries.len()
    }

    /// What was refused so far.
    pub fn refused(&self) -> Vec<Incoming> {
        self.lock().refused.clone()
    }

    /// The next so many calls that receive fail, as they do when a connection is lost.
    pub fn fail_receives(&self, calls: usize) {
        self.lock().failing_receives = calls;
        self.change.notify_waiters();
    }

    /// The next so many calls that answer do not get through.
    pub fn fail_answers(&self, calls: usize) {
        self.lock().failing_answers = calls;
    }

    /// Takes back everything that is in hand, as a broker does that loses its connections: what was received comes again.
    pub fn take_back(&self) {
        self.lock().entries.values_mut().for_each(|entry| entry.holder = None);
        self.change.notify_waiters();
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Hands out up to `most`; or tells when it is worth to look again.
    pub(super) fn take(&mut self, consumer: u64, most: usize, now: Instant) -> (Vec<u64>, Option<Duration>) {
        let (mut taken, mut closed, mut wait) = (Vec::new(), HashSet::new(), None::<Duration>);
        for (number, entry) in &mut self.entries {
            if taken.len() == most {
                break;
            }
            let is_closed = entry.lane.is_some_and(|lane| closed.contains(&lane));
            if let Some(left) = entry.due_at.map(|at| at.saturating_duration_since(now))
                && !left.is_zero()
            {
                wait = Some(wait.map_or(left, |wait| wait.min(left)));
                // What is behind it waits, too.
                closed.extend(entry.lane);
                continue;
            }
            let is_held = entry.holder.is_some();
            // Somebody else has one in front of it.
            if entry.holder.is_some_and(|holder| holder.consumer != consumer) {
                closed.extend(entry.lane);
            }
            if is_held || is_closed {
                continue;
            }
            entry.deliveries += 1;
            entry.due_at = None;
            entry.holder = Some(Holder { consumer, delivery: entry.deliveries });
            taken.push(*number);
        }
        (taken, wait)
    }

    /// The entry that is still in this hand.
    pub(super) fn held(&mut self, number: u64, holder: Holder) -> Option<&mut Entry> {
        self.entries.get_mut(&number).filter(|entry| entry.holder == Some(holder))
    }
}

impl fmt::Debug for Shelf {
    /// Shows no payload: it may carry personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("entries", &self.entries.len()).finish_non_exhaustive()
    }
}
