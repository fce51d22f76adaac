//! The worker: runs handlers on the shared loop.

pub(crate) mod context;
pub(crate) mod deliver;
pub(crate) mod handler;
#[cfg(feature = "testing")]
mod made_up;
mod queue;
#[cfg(feature = "testing")]
pub mod rehearsal;
mod transaction;

pub use crate::{
    carry::{Health, Running, Stopped, Tally},
    failure::{Failure, Next},
    judge::ErrorText,
};
pub use context::{Context, NotShared};
#[cfg(feature = "testing")]
pub use made_up::ContextBuilder;
pub use queue::{Queue, Unknown};
pub use transaction::Tx;

use crate::{carry::Carrier, set_up::SetUp};
use context::Shared;
use postrider_core::{Error, Invalid, QueueName, Store, schema::Schema, wake::Wake};
use std::{sync::Arc, time::Duration};

/// Claims messages, runs their handlers and settles them.
///
/// ```
/// # use postrider_core::{Message, OutboxExt};
/// # use postrider_engine::{Context, Failure, Queue, Worker};
/// # use postrider_stores::memory::MemoryStore;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let mut tx = store.begin();
/// store.stage(&mut tx, Message::builder("orders").json(&17)).await?;
/// tx.commit();
///
/// let worker = Worker::builder(store)
///     .queue(Queue::new("orders").on_json(|order: u64, _: Context| async move {
///         println!("order {order}");
///         Ok::<(), Failure>(())
///     }))
///     .build()?;
/// let tally = worker.run_until_idle().await?; // or `start`, or `run_until_signal`
/// assert_eq!(tally.delivered, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Worker {
    carrier: Carrier,
    set_up: SetUp,
    #[cfg(feature = "testing")]
    rehearsing: rehearsal::Rehearsing,
}

/// Collects what a worker needs; [`build`](Self::build) checks it all.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct WorkerBuilder {
    store: Arc<dyn Store>,
    wake: Option<Arc<dyn Wake>>,
    queues: Vec<Queue>,
    shared: Shared,
    concurrency: Option<usize>,
    flushing: Option<(usize, Duration)>,
}

impl Worker {
    /// Begins a worker on the messages in `store`.
    pub fn builder<S: Store + Wake>(store: S) -> WorkerBuilder {
        let store = Arc::new(store);
        let wake: Arc<dyn Wake> = Arc::clone(&store) as _;
        Self::builder_on(store, Some(wake))
    }

    /// Begins a worker on a store that is shared already. Without a `wake` it polls.
    pub fn builder_on(store: Arc<dyn Store>, wake: Option<Arc<dyn Wake>>) -> WorkerBuilder {
        WorkerBuilder {
            store,
            wake,
            queues: Vec::new(),
            shared: Shared::default(),
            concurrency: None,
            flushing: None,
        }
    }

    /// Settings that work, but seldom as meant. They are also logged when the worker starts.
    pub fn traps(&self) -> &[String] {
        &self.set_up.traps
    }

    /// Declares the policies of its queues in the store. Call it once after migrating.
    ///
    /// # Errors
    /// When the store fails, or refuses a policy.
    pub async fn declare(&self, schema: &dyn Schema) -> Result<(), Error> {
        self.set_up.declare(schema).await
    }

    /// Starts, and goes on until it is stopped. Call it within a runtime of tokio; a stopped worker can be started again.
    pub fn start(&self) -> Running {
        self.set_up.tell_traps();
        self.carrier.start()
    }

    /// Handles what is due now, and what comes due while it does, and stops when nothing is due and nothing is in hand. Retries
    /// that wait for their time are left waiting. For tests, and for jobs that are started by a clock.
    ///
    /// # Errors
    /// When the store fails. What was in hand was settled or released.
    pub async fn run_until_idle(&self) -> Result<Tally, Error> {
        self.carrier.run_until_idle().await
    }

    /// Starts, and stops on the first SIGINT or SIGTERM within `deadline`. On the second it ends at once: leases lapse, and
    /// nothing is lost.
    ///
    /// # Errors
    /// When signals cannot be listened for.
    pub async fn run_until_signal(&self, deadline: Duration) -> std::io::Result<Stopped> {
        self.set_up.tell_traps();
        self.carrier.run_until_signal(deadline).await
    }
}

impl WorkerBuilder {
    /// Also works on this queue.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// Gives a value to all handlers, to be had with [`Context::shared`]. One of each type.
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.shared.put(value);
        self
    }

    /// Runs at most so many handlers at once, of all queues together; the queues' weights decide whose turn it is.
    /// Otherwise each queue runs as many as it may.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Settles up to `size` messages together, and lets none wait longer than `age` for others; 500 and 5 ms unless said
    /// otherwise.
    pub fn settle_together(mut self, size: usize, age: Duration) -> Self {
        self.flushing = Some((size, age));
        self
    }

    /// Only polls: for databases behind a pooler that breaks LISTEN, and for producers that never signal.
    pub fn without_signals(mut self) -> Self {
        self.wake = None;
        self
    }

    /// Checks everything and makes the worker.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does.
    pub fn build(self) -> Result<Worker, Invalid> {
        if self.queues.is_empty() {
            return Err(Invalid::rule("queues", "a worker needs at least one: give it with `queue`"));
        }
        if self.concurrency == Some(0) {
            return Err(Invalid::rule("concurrency", "is 0; nothing would ever run: give at least 1"));
        }
        let shared = Arc::new(self.shared);
        let mut carrier = Carrier::new(self.store, self.wake);
        if let Some(concurrency) = self.concurrency {
            carrier = carrier.with_concurrency(concurrency);
        }
        if let Some((size, age)) = self.flushing {
            carrier = carrier.with_flushing(size, age);
        }
        #[cfg(feature = "testing")]
        let rehearsing = rehearsal::Rehearsing::default();
        let mut set_up = SetUp::default();
        for queue in self.queues {
            set_up.traps.extend(queue.traps());
            if let Some(policy) = &queue.policy {
                policy.check()?;
                set_up.policies.push((QueueName::new(queue.name.as_str())?, policy.clone()));
            }
            let subscription = queue.subscription(
                Arc::clone(&shared),
                #[cfg(feature = "testing")]
                &rehearsing,
            )?;
            carrier = carrier.subscribe(subscription)?;
        }
        Ok(Worker {
            carrier,
            set_up,
            #[cfg(feature = "testing")]
            rehearsing,
        })
    }
}
