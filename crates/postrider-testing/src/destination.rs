//! A destination for tests of relays and routes.

#![expect(clippy::panic, reason = "an assertion fails by panicking")]

use async_trait::async_trait;
use postrider_core::{
    Capacity, Codec, Event, EventType, Finding, Outgoing, PublishError, Receipt, Transport,
};
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A destination in memory that accepts messages and keeps them, and fails on demand. Clones share everything.
///
/// ```
/// # use postrider_core::{Event, Json, OutboxExt, PublishError, RetryStrategy};
/// # use postrider_engine::{Destination, Relay, Route};
/// # use postrider_testing::{Assert, TestDestination, TestStore};
/// # use std::time::Duration;
/// # #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
/// # struct OrderPlaced { order: u64 }
/// # impl Event for OrderPlaced {
/// #     const TYPE: &'static str = "order.placed";
/// #     const QUEUE: &'static str = "orders";
/// #     type Codec = Json;
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (store, billing) = (TestStore::new(), TestDestination::new());
/// let mut tx = store.begin();
/// store.stage(&mut tx, &OrderPlaced { order: 17 }).await?;
/// tx.commit();
///
/// let hourly = RetryStrategy::constant(Duration::from_secs(3600));
/// let relay = Relay::builder(store.clone(), "/shop")
///     .destination(Destination::new("billing", billing.clone()))
///     .route(Route::new("orders").to("billing", "orders.{type}").retry(hourly))
///     .build()?;
/// billing.fail(2, || PublishError::retry("busy"));
/// let report = store.run_until_settled(&relay).await?; // two hours later
///
/// assert_eq!((report.retried, report.delivered), (2, 1));
/// assert_eq!(billing.assert_published::<OrderPlaced>(1), [OrderPlaced { order: 17 }]);
/// assert_eq!(billing.published()[0].destination, "orders.order.placed");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct TestDestination(Arc<Mutex<State>>);

type MakeError = Arc<dyn Fn() -> PublishError + Send + Sync>;

#[derive(Default)]
struct State {
    published: Vec<Outgoing>,
    /// The errors of the next messages.
    failures: VecDeque<MakeError>,
}

impl TestDestination {
    /// Creates a destination that accepts everything.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next `times` messages fail with this error; a message that is sent again counts again.
    ///
    /// After [`PublishError::Unavailable`], the circuit is open for the backoff of the destination, in real time: nothing is sent
    /// until then, and `run_until_idle` ends.
    pub fn fail(&self, times: usize, error: impl Fn() -> PublishError + Send + Sync + 'static) {
        let error: MakeError = Arc::new(error);
        self.lock().failures.extend(std::iter::repeat_n(error, times));
    }

    /// The accepted messages, in that order.
    pub fn published(&self) -> Vec<Outgoing> {
        self.lock().published.clone()
    }

    /// Asserts that exactly `times` events of this type were accepted, and returns them.
    ///
    /// # Panics
    /// When the number differs, or an event cannot be decoded.
    #[track_caller]
    pub fn assert_published<E: Event>(&self, times: usize) -> Vec<E> {
        let published = self.published();
        let of_type = |outgoing: &&Outgoing| {
            outgoing.event_type.as_ref().is_some_and(|event_type| event_type.as_str() == E::TYPE)
        };
        let decode = |outgoing: &Outgoing| match E::Codec::decode(&outgoing.body) {
            Ok(event) => event,
            Err(error) => panic!("a published {} cannot be decoded: {error}", E::TYPE),
        };
        let events: Vec<E> = published.iter().filter(of_type).map(decode).collect();
        if events.len() != times {
            let list = published.iter().map(|outgoing| {
                let event_type = outgoing.event_type.as_ref().map_or("(no type)", EventType::as_str);
                format!("\n  {}: {event_type}", outgoing.destination)
            });
            panic!(
                "expected {times} published {}, found {}\npublished:{}",
                E::TYPE,
                events.len(),
                list.collect::<String>()
            );
        }
        events
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TestDestination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDestination")
            .field("published", &self.lock().published.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for TestDestination {
    fn kind(&self) -> &'static str {
        "test"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(1_000)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let mut state = self.lock();
        let publish = |outgoing: &Outgoing| match state.failures.pop_front() {
            Some(error) => Err(error()),
            None => {
                state.published.push(outgoing.clone());
                Ok(Receipt::new())
            }
        };
        batch.iter().map(publish).collect()
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        Ok(Vec::new())
    }

    async fn close(&self) {}
}
