//! What users test with.
//!
//! | what | with |
//! |---|---|
//! | one handler, called like a function | [`Context::builder`](postrider_engine::Context::builder) |
//! | producers: what was staged, and what was not | [`Assert`], on any store |
//! | handlers and workers, their retries and timers | [`TestStore`], whose clock moves when it is told to |
//! | what happens when something goes wrong | [`Fault`]s that strike deliveries, [`Call`]s that fail |
//!
//! The code under test stays as it is: a `TestStore` goes where the application's store goes.
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
//! // The first two deliveries go wrong, and an hour and two minutes pass, in no time.
//! store.fault_on::<OrderPlaced>(1, Fault::Panic);
//! store.fault_on::<OrderPlaced>(2, Fault::TimeOut);
//! let tally = store.run_until_settled(&worker).await?;
//!
//! assert_eq!((tally.delivered, tally.retried), (1, 2));
//! assert_eq!(store.delivered::<OrderPlaced>().await?, [OrderPlaced { order: 17 }]);
//! store.assert_empty().await;
//! # Ok(())
//! # }
//! ```
//!
//! Users add the crate `postrider` with its feature `testing`, which re-exports all of this as `postrider::testing`.

mod assert;
mod claims;
mod forward;
mod run;
mod script;
mod seam;
mod shown;
mod store;

pub use assert::Assert;
pub use postrider_engine::{ContextBuilder, worker::Next};
pub use script::{Call, Fault};
pub use store::TestStore;
