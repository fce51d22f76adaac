//! Transactional outbox, relay and inbox: write a message in your own transaction, and Postrider delivers it.
//!
//! A message that is *staged* in a transaction exists if and only if that transaction commits. A [`Worker`] then runs your handlers,
//! a [`Relay`] publishes to brokers and webhooks, and on the receiving side a [`Consumer`] handles each message exactly once in effect.
//!
//! # Five items to start with
//!
//! | item | for |
//! |---|---|
//! | [`Event`] | your message types: `#[derive(Event)]` gives them an event type, a queue and JSON |
//! | [`OutboxExt::stage`] | staging in your transaction: `store.outbox().stage(&mut tx, &event)` |
//! | [`Worker`] and [`Queue`] | running handlers, with retries, timeouts, concurrency and rate limits |
//! | [`Relay`], [`Destination`] and [`Route`] | publishing to Kafka, RabbitMQ, NATS, Redis, SQS/SNS and webhooks |
//! | [`Consumer`] | receiving from them, with deduplication in the handler's transaction |
//!
//! ```
//! use postrider::{Context, Event, Failure, OutboxExt, Queue, Worker, memory::MemoryStore};
//!
//! #[derive(Event, serde::Serialize, serde::Deserialize)]
//! #[event(type = "order.placed", queue = "orders")]
//! struct OrderPlaced { order: u64 }
//!
//! async fn confirm(event: OrderPlaced, _: Context) -> Result<(), Failure> {
//!     println!("order {} is confirmed", event.order);
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new(); // or `SqliteStore::open`, or `PostgresStore::connect`
//! let mut tx = store.begin();
//! store.stage(&mut tx, &OrderPlaced { order: 17 }).await?;
//! tx.commit();
//!
//! let worker = Worker::builder(store).queue(Queue::new("orders").on(confirm)).build()?;
//! let report = worker.run_until_idle().await?; // in a service: `run_until_signal`
//! assert_eq!(report.delivered, 1);
//! # Ok(()) }
//! ```
//!
//! # Modules
//!
//! | module | content |
//! |---|---|
//! | the crate's root | [`Message`], names, [`Event`], [`Outbox`], [`Inbox`], [`Store`], [`Settlement`], [`RetryStrategy`] |
#![cfg_attr(
    feature = "postgres",
    doc = "| [`postgres`] | the PostgreSQL store, and staging with sqlx, tokio-postgres, diesel-async and SeaORM |"
)]
#![cfg_attr(feature = "sqlite", doc = "| [`sqlite`] | the SQLite store, and staging with sqlx and SeaORM |")]
#![cfg_attr(feature = "memory", doc = "| [`memory`] | the in-memory store, for tests |")]
#![cfg_attr(feature = "worker", doc = "| [`worker`] | workers and their queues |")]
#![cfg_attr(feature = "relay", doc = "| [`relay`] | relays, routes and destinations |")]
#![cfg_attr(feature = "consumer", doc = "| [`consumer`] | consumers with an inbox |")]
#![cfg_attr(
    any(feature = "relay", feature = "consumer"),
    doc = "| [`transports`] | brokers and webhooks, in both directions |"
)]
#![cfg_attr(
    feature = "saga",
    doc = "| [`saga`] | follow-ups and sagas: external calls with audit and compensation |"
)]
#![cfg_attr(feature = "cron", doc = "| [`cron`] | recurring messages |")]
#![cfg_attr(
    feature = "testing",
    doc = "| [`testing`] | for your tests: a store with a virtual clock, assertions and faults on demand |"
)]
//! | [`follow_up`], [`audit`] | follow-ups and the ledger of their outcomes |
//! | [`inspect`], [`schema`], [`checkup`] | operators' view, migrations, health checks |
//! | [`cloudevents`], [`hlc`], [`codec`], [`trace`] | wire format, causal order, encoding, trace context |
#![cfg_attr(
    all(feature = "opentelemetry", feature = "worker", feature = "memory"),
    doc = r#"
# The feature `opentelemetry`

A message carries the trace in which it is staged, and the span of its handler is linked to that trace, so that a trace viewer shows
producer and consumer together. No call is needed: use spans of `tracing`, bridged with `tracing-opentelemetry`, or of OpenTelemetry.

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
#![cfg_attr(docsrs, feature(doc_cfg))]

pub use postrider_core::*;
#[cfg(feature = "saga")]
pub use postrider_engine::SagaRunner;
#[cfg(feature = "cron")]
pub use postrider_engine::cron;
#[cfg(feature = "consumer")]
pub use postrider_engine::{Consumer, consumer};
#[cfg(any(feature = "worker", feature = "relay", feature = "consumer", feature = "saga"))]
pub use postrider_engine::{Context, Failure, Health, Report, Running, Stopped, Tx, runner};
#[cfg(feature = "relay")]
pub use postrider_engine::{Destination, Relay, Route, relay};
#[cfg(feature = "worker")]
pub use postrider_engine::{Queue, Worker, worker};
#[cfg(feature = "derive")]
pub use postrider_macros::Event;
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

/// Follow-ups and sagas: the runner, resolvers and plans.
pub mod saga {
    pub use postrider_core::saga as plan;
    #[cfg(feature = "saga")]
    pub use postrider_engine::saga::*;
}

/// README and guides whose code is compiled and run.
#[cfg(doctest)]
mod guides {
    #[cfg(all(feature = "derive", feature = "sqlite", feature = "relay", feature = "worker"))]
    #[doc = include_str!("../../../README.md")]
    mod readme {}
    #[cfg(all(feature = "derive", feature = "postgres", feature = "rabbitmq"))]
    #[doc = include_str!("../../../docs/guides/consuming.md")]
    mod consuming {}
    #[cfg(all(feature = "postgres", feature = "http", feature = "http-source"))]
    #[doc = include_str!("../../../docs/guides/http.md")]
    mod http {}
    #[cfg(all(feature = "postgres", feature = "kafka"))]
    #[doc = include_str!("../../../docs/guides/kafka.md")]
    mod kafka {}
    #[cfg(all(feature = "postgres", feature = "nats"))]
    #[doc = include_str!("../../../docs/guides/nats.md")]
    mod nats {}
    #[cfg(all(feature = "postgres", feature = "worker"))]
    #[doc = include_str!("../../../docs/observability.md")]
    mod observability {}
    #[cfg(feature = "relay")]
    #[doc = include_str!("../../../docs/guides/own-transport.md")]
    mod own_transport {}
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../../docs/guides/pgbouncer.md")]
    mod pgbouncer {}
    #[cfg(all(feature = "postgres", feature = "rabbitmq"))]
    #[doc = include_str!("../../../docs/guides/rabbitmq.md")]
    mod rabbitmq {}
    #[cfg(all(feature = "postgres", feature = "redis"))]
    #[doc = include_str!("../../../docs/guides/redis.md")]
    mod redis {}
    #[cfg(all(feature = "relay", feature = "memory"))]
    #[doc = include_str!("../../../docs/guides/relaying.md")]
    mod relaying {}
    #[cfg(all(feature = "saga", feature = "postgres"))]
    #[doc = include_str!("../../../docs/guides/sagas.md")]
    mod sagas {}
    #[cfg(all(feature = "postgres", feature = "sns", feature = "sqs"))]
    #[doc = include_str!("../../../docs/guides/sqs.md")]
    mod sqs {}
    #[cfg(all(feature = "testing", feature = "relay", feature = "consumer", feature = "derive"))]
    #[doc = include_str!("../../../docs/guides/testing.md")]
    mod testing {}
    #[cfg(all(
        feature = "http",
        feature = "kafka",
        feature = "nats",
        feature = "postgres",
        feature = "rabbitmq",
        feature = "redis",
        feature = "sqs"
    ))]
    #[doc = include_str!("../../../docs/guides/tls.md")]
    mod tls {}
    #[cfg(all(feature = "cron", feature = "postgres"))]
    #[doc = include_str!("../../../docs/guides/workers.md")]
    mod workers {}
}
