//! The consumer: messages that a broker delivers at least once take effect exactly once.
//!
//! ```text
//!            receive              dispatch                        one transaction         ack
//!   source ───────────▶ receiver ───────────▶ dispatcher ───▶ task: admit, handle, commit ───▶ source
//!                          ▲  bounded by `prefetch`           one per slot of `concurrency`      │
//!                          └─────────────────────────── slot freed ◀─────────────────────────────┘
//! ```
//!
//! **Who is authoritative.** The [inbox](postrider_core::inbox). A deduplication record is written in the transaction of the
//! effects, and the message is acked after its commit. A process that dies in between gets the message again, finds the record,
//! and acks it.
//!
//! **What is bounded.** The messages in flight: the receiver requests no more than there are free slots (prefetch). The batch
//! of one transaction is a task's fair share of the waiting messages, so that few messages run side by side, and many run
//! together.
//!
//! **On failure.** Of a handler: its batch is rolled back and each of its messages is handled alone, so that one does not
//! affect the others; a message that fails then is nacked with a delay, or dead-lettered. Of the database: messages stay in
//! flight until the database answers again or the broker redelivers them; no attempt is counted. Of the broker: receiving is
//! retried with backoff; messages whose ack was lost are redelivered.
//!
//! **Order.** Messages of one lane are handled one after the other. When one is nacked, the messages that were received behind
//! it in its lane are nacked, too, without having been handled (`dispatcher.rs`).
//!
//! **On stop (graceful shutdown).** The receiver ends at once, messages that were not started are nacked, and running batches
//! may finish within the drain timeout.

mod builder;
mod dead_letter;
mod decoder;
mod dispatcher;
mod handler;
mod in_flight;
mod metrics;
mod processor;
mod receiver;
mod replay;
mod retention;
mod tasks;
mod transaction;

pub use builder::ConsumerBuilder;
pub use replay::ReplayReport;
pub use retention::{RESEND_WINDOW, StartError, deduplication_window};

use crate::runner::Report;
use postrider_core::{QueueName, Source, TxBackend};
use processor::Processor;
use std::{fmt, sync::Arc};

/// Receives from a broker, and runs handlers whose effects happen exactly once.
///
/// ```
/// # use postrider_core::{Incoming, OutboxExt, Message};
/// # use postrider_engine::{Consumer, Context, Failure, Tx};
/// # use postrider_stores::memory::{MemoryStore, MemoryTransaction};
/// # use postrider_transports::memory::MemoryQueue;
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let orders = MemoryQueue::new("orders");
/// # let source = orders.source();
/// # let mut incoming = Incoming::new("orders", "17");
/// # incoming.id = Some("A-1".into());
/// # orders.put(incoming.clone());
/// # orders.put(incoming); // the broker delivers it twice
/// let store = MemoryStore::new();
/// # let outbox = store.clone();
/// let consumer = Consumer::builder("billing", source, store)
///     .on_json(move |order: u64, mut tx: Tx<MemoryTransaction>, context: Context| {
///         let outbox = outbox.clone();
///         async move {
///             // Writes and staged messages in `tx` commit with the deduplication record of the message.
///             let invoice = Message::builder("invoices").json(&order);
///             outbox.stage(&mut *tx, context.follow(invoice)).await?;
///             Ok::<(), Failure>(())
///         }
///     })
///     .idle_after(Duration::from_millis(50))
///     .build()?;
/// let report = consumer.run_until_idle().await?; // or `start`, or `run_until_signal`
/// assert_eq!((report.delivered, report.duplicates), (1, 1));
/// # Ok(())
/// # }
/// ```
pub struct Consumer<R: TxBackend> {
    processor: Arc<Processor<R>>,
}

impl<R: TxBackend> Consumer<R> {
    /// Starts building a consumer of this name. Its deduplication records are its own: two consumers of different names
    /// each handle every message once.
    pub fn builder(name: impl Into<String>, source: impl Source, store: R) -> ConsumerBuilder<R> {
        Self::builder_on(name, Arc::new(source), store)
    }

    /// Starts building a consumer on a source that is already shared.
    pub fn builder_on(name: impl Into<String>, source: Arc<dyn Source>, store: R) -> ConsumerBuilder<R> {
        ConsumerBuilder::new(name.into(), source, store)
    }

    /// The queue of its dead letters.
    pub fn queue(&self) -> &QueueName {
        &self.processor.queue
    }

    /// The counts of all messages so far, over all runs.
    pub fn report(&self) -> Report {
        self.processor.metrics.report()
    }

    /// Configuration warnings: valid settings that are probably a mistake. They are also logged when the consumer starts.
    pub fn warnings(&self) -> &[String] {
        &self.processor.warnings
    }
}

impl<R: TxBackend> Clone for Consumer<R> {
    fn clone(&self) -> Self {
        Self { processor: Arc::clone(&self.processor) }
    }
}

impl<R: TxBackend> fmt::Debug for Consumer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.processor.name)
            .field("source", &self.processor.source)
            .finish_non_exhaustive()
    }
}
