//! Tools for testing applications that use Postrider: an in-memory store with a virtual clock, destinations and
//! sources in memory, assertions, and fault injection.
//!
//! | to test | use |
//! |---|---|
//! | one handler, called like a function | [`Context::builder`](postrider_engine::Context::builder) |
//! | producers: which messages they stage, and which they do not | [`Assert`], on any store |
//! | handlers and workers, with their retries and timers | [`TestStore`], whose clock moves only when the test moves it |
//! | relays and their routes | a [`TestDestination`], which fails on demand |
//! | consumers | a [`TestSource`], which redelivers on the clock of the store |
//! | sagas and follow-ups | a saga runner on the `TestStore`, with your resolvers |
//! | behaviour under failures | [`Fault`]s injected into deliveries, [`StoreCall`]s that fail |
//!
//! The code under test does not change: pass a `TestStore` in place of the application's store.
//!
//! ```
//! # use postrider_core::{Event, Json, OutboxExt, Reason, RetryStrategy};
//! # use postrider_engine::{Context, Failure, Queue, Worker};
//! use postrider_testing::{Assert, Fault, TestStore};
//! # use std::time::Duration;
//! # #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
//! # struct OrderPlaced { order: u64 }
//! # impl Event for OrderPlaced {
//! #     const TYPE: &'static str = "order.placed";
//! #     const QUEUE: &'static str = "orders";
//! #     type Codec = Json;
//! # }
//! # async fn ship(event: OrderPlaced, context: Context) -> Result<(), Failure> { Ok(()) }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = TestStore::new();
//! let mut tx = store.begin();
//! store.stage(&mut tx, OrderPlaced { order: 17 }.message().due_after(Duration::from_secs(3600))).await?;
//! tx.commit();
//! store.assert_staged::<OrderPlaced>(1).await;
//!
//! let orders = Queue::new("orders").on(ship).retry(RetryStrategy::constant(Duration::from_secs(60)));
//! let worker = Worker::builder(store.clone()).queue(orders).build()?;
//!
//! // The first two deliveries fail. One hour and two minutes pass on the virtual clock; the test does not sleep.
//! store.fault_on::<OrderPlaced>(1, Fault::Panic);
//! store.fault_on::<OrderPlaced>(2, Fault::TimeOut);
//! let report = store.run_until_settled(&worker).await?;
//!
//! assert_eq!((report.delivered, report.retried), (1, 2));
//! assert_eq!(store.delivered::<OrderPlaced>().await?, [OrderPlaced { order: 17 }]);
//! store.assert_empty().await;
//! # Ok(())
//! # }
//! ```
//!
//! Add the crate `postrider` with its feature `testing`, which re-exports this crate as `postrider::testing`.

mod assert;
mod claims;
mod delegate;
mod destination;
mod fault_points;
mod faults;
mod format;
mod run;
mod runner;
mod source;
mod store;

pub use assert::Assert;
pub use destination::TestDestination;
pub use faults::{Fault, StoreCall};
pub use postrider_engine::{ContextBuilder, worker::Next};
pub use runner::TestRunner;
pub use source::TestSource;
pub use store::TestStore;
