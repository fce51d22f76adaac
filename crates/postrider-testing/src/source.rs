//! A source for tests of consumers, on the virtual clock of a store.

use crate::TestStore;
use async_trait::async_trait;
use postrider_core::{
    Ack, AckHandle, Capabilities, Finding, Format, Incoming, IntoMessage, Invalid, MessageId, Outgoing,
    ReceivedMessage, RedeliveryWindow, Source, SourceError,
};
use postrider_stores::memory::MemoryStore;
use std::{
    collections::BTreeMap,
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Poll, Waker},
    time::{Duration, SystemTime},
};

/// A broker's queue in memory, which counts deliveries. A nacked message is redelivered when its delay has passed on the store's
/// virtual clock. Clones are the same queue; create one with [`TestStore::source`].
///
/// ```
/// # use postrider_core::{Event, Json};
/// # use postrider_engine::{Consumer, Context, Failure, Tx};
/// # use postrider_stores::memory::MemoryTransaction;
/// # use postrider_testing::TestStore;
/// # use std::time::Duration;
/// # #[derive(Debug, serde::Serialize, serde::Deserialize)]
/// # struct OrderPlaced { order: u64 }
/// # impl Event for OrderPlaced {
/// #     const TYPE: &'static str = "order.placed";
/// #     const QUEUE: &'static str = "orders";
/// #     type Codec = Json;
/// # }
/// async fn invoice(placed: OrderPlaced, _: Tx<MemoryTransaction>, context: Context) -> Result<(), Failure> {
///     match context.deliveries() {
///         1 => Err(Failure::retry_after(Duration::from_secs(3600), "the printer is off")),
///         _ => Ok(()),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = TestStore::new();
/// let orders = store.source("orders");
/// orders.put_message(&OrderPlaced { order: 17 })?;
/// let consumer = Consumer::builder("billing", orders.clone(), store.clone())
///     .on(invoice)
///     .idle_after(Duration::from_millis(5)) // of real time: no message arrives any more
///     .build()?;
/// let report = store.run_until_settled(&consumer).await?; // an hour later
/// assert_eq!((report.retried, report.delivered, orders.left()), (1, 1, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TestSource {
    name: Arc<str>,
    clock: MemoryStore,
    queue: Arc<TestQueue>,
}

/// The messages of a source.
#[derive(Default)]
pub(crate) struct TestQueue(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    entries: BTreeMap<u64, Entry>,
    rejected: Vec<Incoming>,
    /// Consumers that wait for a message.
    waiting: Vec<Waker>,
}

struct Entry {
    incoming: Incoming,
    deliveries: u32,
    /// When it may be delivered; `None` while it is in flight.
    due_at: Option<SystemTime>,
}

impl TestStore {
    /// Creates a source for a consumer, on the clock of this store.
    pub fn source(&self, name: impl Into<Arc<str>>) -> TestSource {
        let queue = Arc::new(TestQueue::default());
        self.lock().sources.push(Arc::clone(&queue));
        TestSource { name: name.into(), clock: self.memory.clone(), queue }
    }
}

impl TestQueue {
    /// Wakes consumers that wait for a message: the clock was moved.
    pub(crate) fn wake(&self) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// When the messages that are not in flight are due.
    pub(crate) fn due_times(&self) -> Vec<SystemTime> {
        self.lock().entries.values().filter_map(|entry| entry.due_at).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TestSource {
    /// Puts a message into the queue, as it comes over the wire.
    pub fn put(&self, incoming: impl Into<Incoming>) {
        let mut incoming = incoming.into();
        incoming.origin = self.name.as_ref().to_owned();
        let mut state = self.queue.lock();
        let number = state.next;
        state.next += 1;
        state.entries.insert(number, Entry { incoming, deliveries: 0, due_at: Some(self.clock.now()) });
        drop(state);
        self.queue.wake();
    }

    /// Puts an event or a message into the queue, as another service would send it, and returns its id.
    ///
    /// # Errors
    /// When the message is invalid.
    pub fn put_message(&self, message: impl IntoMessage) -> Result<MessageId, Invalid> {
        let (message, now) = (message.into_message()?, self.clock.now());
        let id = message.id().unwrap_or_else(|| MessageId::at(now));
        self.put(Outgoing::write(&message, id, now, "/test", self.name.as_ref().to_owned(), Format::Binary)?);
        Ok(id)
    }

    /// The number of messages that are neither acked nor rejected.
    pub fn left(&self) -> usize {
        self.queue.lock().entries.len()
    }

    /// The messages that were rejected.
    pub fn rejected(&self) -> Vec<Incoming> {
        self.queue.lock().rejected.clone()
    }

    fn take(&self, state: &mut State, most: usize) -> Vec<ReceivedMessage> {
        let now = self.clock.now();
        let due = state.entries.iter_mut().filter(|(_, entry)| entry.due_at.is_some_and(|at| at <= now));
        let deliver = |(number, entry): (&u64, &mut Entry)| {
            entry.deliveries += 1;
            entry.due_at = None;
            ReceivedMessage::new(entry.incoming.clone(), AckHandle::new(*number)).delivered(entry.deliveries)
        };
        due.take(most).map(deliver).collect()
    }

    fn end(&self, number: u64, ack: Ack) -> Result<(), SourceError> {
        let mut state = self.queue.lock();
        match ack {
            Ack::Nack { after } => {
                if let Some(entry) = state.entries.get_mut(&number) {
                    entry.due_at = self.clock.now().checked_add(after);
                }
            }
            Ack::Ack | Ack::Reject => {
                let ended = state.entries.remove(&number).filter(|_| ack == Ack::Reject);
                state.rejected.extend(ended.map(|entry| entry.incoming));
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Source for TestSource {
    fn kind(&self) -> &'static str {
        "test"
    }

    fn origin(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(1_000).with_delivery_counts().with_max_delay(Duration::MAX)
    }

    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        let received = poll_fn(|context| {
            let mut state = self.queue.lock();
            let received = self.take(&mut state, most);
            if received.is_empty() {
                state.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(received)
        });
        Ok(received.await)
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        let result = |(handle, ack): &(AckHandle, Ack)| match handle.downcast::<u64>() {
            Some(number) => self.end(*number, *ack),
            None => Ok(()),
        };
        let results = acks.iter().map(result).collect();
        self.queue.wake();
        results
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        handles.iter().map(|_| Ok(())).collect()
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        Ok(RedeliveryWindow::within(Duration::ZERO, "nothing is redelivered after the test"))
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        Ok(Vec::new())
    }

    /// Messages in flight are redelivered to the next consumer.
    async fn close(&self) {
        let now = self.clock.now();
        self.queue.lock().entries.values_mut().for_each(|entry| {
            entry.due_at.get_or_insert(now);
        });
    }
}

impl fmt::Debug for TestSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestSource")
            .field("name", &self.name)
            .field("left", &self.left())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TestQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestQueue").field("left", &self.lock().entries.len()).finish_non_exhaustive()
    }
}
