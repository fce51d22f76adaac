#![doc = include_str!("../../../README.md")]
//!
//! # Where things are
//!
//! This crate holds no logic: it re-exports the rooms of the house, each store behind its own feature.
//!
//! | module | what is in it |
//! |---|---|
//! | the crate's root | [`Message`], its names, [`Event`], [`Outbox`], [`Inbox`], [`Store`], [`Settlement`], [`RetryStrategy`] |
//! | [`follow_up`], [`audit`] | calls that follow a change: [`FollowUp`], [`Reference`], and staging them; the ledger of what became of them |
//! | [`inspect`], [`schema`], [`timetable`], [`wake`] | the other seams of a store |
//! | [`trace`] | the trace in which messages are staged |
//! | [`cloudevents`], [`hlc`], [`codec`] | what travels, and in what order |
#![cfg_attr(
    feature = "worker",
    doc = "| [`worker`] | claims messages, runs their handlers and settles them |"
)]
#![cfg_attr(feature = "relay", doc = "| [`relay`] | claims messages and publishes them |")]
#![cfg_attr(
    feature = "consumer",
    doc = "| [`consumer`] | receives messages, and runs handlers whose effects are there once |"
)]
#![cfg_attr(
    any(feature = "relay", feature = "consumer"),
    doc = "| [`transports`] | where a relay publishes to, and a consumer receives from |"
)]
#![cfg_attr(
    feature = "saga",
    doc = "| [`saga`] | makes the calls that follow a change, until each has ended in a known state |"
)]
#![cfg_attr(feature = "cron", doc = "| [`cron`] | schedules, and the scheduler that stages what recurs |")]
#![cfg_attr(feature = "memory", doc = "| [`memory`] | the store in memory, for tests |")]
#![cfg_attr(
    feature = "sqlite",
    doc = "| [`sqlite`] | the store in a file of SQLite, and staging and admitting in the transactions of your driver |"
)]
#![cfg_attr(
    feature = "postgres",
    doc = "| [`postgres`] | the store in PostgreSQL, and staging and admitting in the transactions of your driver |"
)]
#![cfg_attr(
    feature = "testing",
    doc = "| [`testing`] | a store with a virtual clock, assertions, and faults on demand, for your own tests |"
)]
#![cfg_attr(
    all(feature = "opentelemetry", feature = "worker", feature = "memory"),
    doc = r#"
# The feature `opentelemetry`

A message carries the trace in which it is staged, and the span of its handler is linked to it, so that a trace viewer shows
producer and consumer together. There is nothing to call: have spans, of `tracing` bridged with `tracing-opentelemetry` or of
OpenTelemetry itself.

```
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use postrider::{Context, Failure, Message, OutboxExt, Queue, Worker, memory::MemoryStore};
use tracing::Instrument;
use tracing_subscriber::layer::SubscriberExt;

# #[tokio::main(flavor = "current_thread")]
# async fn main() -> Result<(), Box<dyn std::error::Error>> {
// In your program: the exporter of your choice.
let exporter = InMemorySpanExporter::default();
let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
let bridge = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
tracing::subscriber::set_global_default(tracing_subscriber::registry().with(bridge))?;

let store = MemoryStore::new();
async {
    let mut tx = store.begin();
    store.stage(&mut tx, Message::builder("orders").json(&17)).await?;
    tx.commit();
    Ok::<(), postrider::store::Error>(())
}
.instrument(tracing::info_span!("checkout"))
.await?;

let orders = Queue::new("orders").on_json(|_: u64, _: Context| async { Ok::<(), Failure>(()) });
Worker::builder(store).queue(orders).build()?.run_until_idle().await?;

let spans = exporter.get_finished_spans()?;
let [checkout, handled] = &spans[..] else { panic!("two spans have ended") };
assert_eq!((checkout.name.as_ref(), handled.name.as_ref()), ("checkout", "postrider.handle"));
assert_eq!(handled.links[0].span_context.span_id(), checkout.span_context.span_id());
# Ok(()) }
```
"#
)]

pub use postrider_core::*;
#[cfg(feature = "saga")]
pub use postrider_engine::SagaRunner;
#[cfg(feature = "cron")]
pub use postrider_engine::cron;
#[cfg(feature = "consumer")]
pub use postrider_engine::{Consumed, Consumer, consumer};
#[cfg(any(feature = "worker", feature = "relay", feature = "consumer", feature = "saga"))]
pub use postrider_engine::{Context, Failure, Tx};
#[cfg(feature = "relay")]
pub use postrider_engine::{Destination, Relay, Route, relay};
#[cfg(feature = "worker")]
pub use postrider_engine::{Queue, Worker, worker};
#[cfg(feature = "memory")]
pub use postrider_stores::memory;
#[cfg(feature = "postgres")]
pub use postrider_stores::postgres;
#[cfg(feature = "sqlite")]
pub use postrider_stores::sqlite;
#[cfg(feature = "testing")]
pub use postrider_testing as testing;
#[cfg(any(feature = "relay", feature = "consumer"))]
pub use postrider_transports as transports;

/// Calls that follow a change: who makes them, and the plans of those that succeed together or are made good.
pub mod saga {
    pub use postrider_core::saga as plan;
    #[cfg(feature = "saga")]
    pub use postrider_engine::saga::*;
}

/// The guides whose code is run.
#[cfg(doctest)]
mod guides {
    #[cfg(feature = "relay")]
    #[doc = include_str!("../../../docs/guides/own-transport.md")]
    mod own_transport {}
    #[cfg(all(feature = "saga", feature = "postgres"))]
    #[doc = include_str!("../../../docs/guides/sagas.md")]
    mod sagas {}
}
