//! The consumer: what a broker delivers at least once has its effect exactly once.
//!
//! ```text
//!            receive              hand over               one transaction                    answer
//!   source ───────────▶ receiver ───────────▶ hall ───▶ runner: admit, handle, commit ───▶ source
//!                          ▲  bounded by `in_hand`        one per place in `concurrency`      │
//!                          └──────────────────────── room freed ◀─────────────────────────────┘
//! ```
//!
//! **Who is authoritative.** The [inbox](postrider_core::inbox). A mark is made in the transaction of the effects, and the broker is told
//! after its commit. A process that dies in between gets the message again, finds the mark, and acknowledges it.
//!
//! **What is bounded.** What is in hand: the receiver asks for no more than there is room for. A batch that is handled in one
//! transaction is a runner's fair share of what waits, so that few messages run side by side, and many run together.
//!
//! **On failure.** Of a handler: its batch is rolled back and each of its messages is run alone, so that one harms no other; what fails
//! then is handed back, with a delay, or parked. Of the database: what is in hand is kept there, until it answers again or the
//! broker wants it back; nothing is counted. Of the broker: receiving begins again, with pauses; what it was not told comes again.
//!
//! **Order.** Messages of one lane are handled one after the other. Where one is handed back, whatever was received behind it in its lane
//! is handed back, too, without having been run (`hall.rs`).
//!
//! **On stop.** The receiver ends at once, what nobody has begun is handed back, and the batches that run may finish within the
//! deadline.

mod batch;
mod builder;
mod count;
mod hall;
mod handler;
mod mail;
mod park;
mod receiver;
mod replay;
mod retention;
mod running;
mod work;

pub use builder::ConsumerBuilder;
pub use count::Consumed;
pub use replay::Replayed;
pub use retention::{RESENT_WITHIN, StartError, marks_needed};
pub use running::{Consuming, Drained};

use postrider_core::{QueueName, Receive, Source};
use std::{fmt, sync::Arc};
use work::Work;

/// Receives from a broker, and runs handlers whose effects are there exactly once.
///
/// ```
/// # use postrider_core::{Incoming, OutboxExt, Message};
/// # use postrider_engine::{Consumer, Context, Failure, Tx};
/// # use postrider_stores::memory::{MemoryStore, Transaction};
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
///     .on_json(move |order: u64, mut tx: Tx<Transaction>, context: Context| {
///         let outbox = outbox.clone();
///         async move {
///             // What is written and staged in `tx` commits with the mark that the message was received.
///             let invoice = Message::builder("invoices").json(&order);
///             outbox.stage(&mut *tx, context.follow(invoice)).await?;
///             Ok::<(), Failure>(())
///         }
///     })
///     .build()?;
/// let consumed = consumer.run_until_idle(Duration::from_millis(50)).await?;
/// assert_eq!((consumed.processed, consumed.duplicates), (1, 1));
/// # Ok(())
/// # }
/// ```
pub struct Consumer<R: Receive> {
    work: Arc<Work<R>>,
}

impl<R: Receive> Consumer<R> {
    /// Begins a consumer of this name. Its marks are its own: two consumers of different names each handle every message once.
    pub fn builder(name: impl Into<String>, source: impl Source, store: R) -> ConsumerBuilder<R> {
        Self::builder_on(name, Arc::new(source), store)
    }

    /// The same on a source that is shared already.
    pub fn builder_on(name: impl Into<String>, source: Arc<dyn Source>, store: R) -> ConsumerBuilder<R> {
        ConsumerBuilder::new(name.into(), source, store)
    }

    /// The queue whose dead letters its parked messages are.
    pub fn queue(&self) -> &QueueName {
        &self.work.queue
    }

    /// What became of the messages so far.
    pub fn consumed(&self) -> Consumed {
        self.work.counts.consumed()
    }

    /// Settings that work, but seldom as meant. They are also logged when it starts.
    pub fn traps(&self) -> &[String] {
        &self.work.traps
    }
}

impl<R: Receive> Clone for Consumer<R> {
    fn clone(&self) -> Self {
        Self { work: Arc::clone(&self.work) }
    }
}

impl<R: Receive> fmt::Debug for Consumer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.work.name)
            .field("source", &self.work.source)
            .finish_non_exhaustive()
    }
}
