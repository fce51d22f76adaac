//! The worker: runs handlers, on the shared delivery loop.

pub(crate) mod deliver;
#[cfg(feature = "testing")]
pub mod fault_injection;
pub(crate) mod handler;
mod queue;
mod transaction;

#[cfg(feature = "testing")]
pub use crate::context::ContextBuilder;
pub use crate::{
    context::{Context, NotShared},
    failure::{Failure, Next},
    failure_policy::ErrorText,
};
pub use queue::{OnUnknownType, Queue};
pub use transaction::Tx;

use crate::{
    context::Shared,
    delivery_loop::DeliveryEngine,
    pruner::{PRUNE_INTERVAL, check_prune_interval},
    runner::{Report, Running, Stopped},
    setup::Setup,
};
use postrider_core::{Backend, Error, Invalid, QueueName, hlc::HybridClock};
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
/// let report = worker.run_until_idle().await?; // or `start`, or `run_until_signal`
/// assert_eq!(report.delivered, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Worker {
    backend: Arc<dyn Backend>,
    engine: DeliveryEngine,
    setup: Setup,
    #[cfg(feature = "testing")]
    fault_slot: fault_injection::FaultSlot,
}

/// Builder of a [`Worker`]; [`build`](Self::build) checks the settings.
#[derive(Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct WorkerBuilder {
    backend: Arc<dyn Backend>,
    has_notifications: bool,
    queues: Vec<Queue>,
    shared: Shared,
    concurrency: Option<usize>,
    settle_batch: Option<(usize, Duration)>,
    prune_interval: Option<Duration>,
}

impl Worker {
    /// Starts building a worker on the messages in a store.
    pub fn builder(backend: impl Backend) -> WorkerBuilder {
        Self::builder_on(Arc::new(backend))
    }

    /// Starts building a worker on a backend that is already shared.
    pub fn builder_on(backend: Arc<dyn Backend>) -> WorkerBuilder {
        WorkerBuilder {
            backend,
            has_notifications: true,
            queues: Vec::new(),
            shared: Shared::default(),
            concurrency: None,
            settle_batch: None,
            prune_interval: Some(PRUNE_INTERVAL),
        }
    }

    /// Configuration warnings: valid settings that are probably a mistake. They are also logged when the worker starts.
    pub fn warnings(&self) -> &[String] {
        &self.setup.warnings
    }

    /// Declares the policies of its queues in the store. Call it once after migrating.
    ///
    /// # Errors
    /// When the store fails, or rejects a policy.
    pub async fn declare(&self) -> Result<(), Error> {
        self.setup.declare(&*self.backend).await
    }

    /// Starts the worker. It runs until it is stopped. Call it within a tokio runtime; a stopped worker can be started
    /// again.
    pub fn start(&self) -> Running {
        self.setup.log_warnings();
        self.engine.start()
    }

    /// Handles all messages that are due now or come due meanwhile, and stops when none is due and none is in flight.
    /// Scheduled retries stay scheduled. For tests and scheduled jobs.
    ///
    /// # Errors
    /// When the store fails. Messages in flight were settled or released.
    pub async fn run_until_idle(&self) -> Result<Report, Error> {
        self.engine.run_until_idle().await
    }

    /// Handles one batch of each queue: as many messages as one claim returns. For scheduled jobs: repeat it until
    /// [`Report::claimed`] is 0.
    ///
    /// # Errors
    /// When the store fails. Messages in flight were settled or released.
    pub async fn run_batch(&self) -> Result<Report, Error> {
        self.engine.run_batch().await
    }

    /// Starts the worker, and stops it gracefully on the first SIGINT or SIGTERM, within `drain_timeout`. The second signal
    /// ends it at once: leases expire, and no message is lost.
    ///
    /// # Errors
    /// When no signal handler can be installed.
    pub async fn run_until_signal(&self, drain_timeout: Duration) -> std::io::Result<Stopped> {
        self.setup.log_warnings();
        self.engine.run_until_signal(drain_timeout).await
    }
}

impl WorkerBuilder {
    /// Adds a queue.
    pub fn queue(mut self, queue: Queue) -> Self {
        self.queues.push(queue);
        self
    }

    /// Shares a value with all handlers; they read it with [`Context::shared`]. One value per type.
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.shared.put(value);
        self
    }

    /// Gives messages that handlers stage with [`Context::follow`] readings of this hybrid logical clock, later than those of the
    /// messages that caused them.
    pub fn clock(self, clock: Arc<HybridClock>) -> Self {
        self.share(clock)
    }

    /// Concurrency over all queues; the queues' weights decide which one runs next. Default: the sum of the queues' own
    /// limits.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// Settles up to `size` messages in one batch; a finished message waits at most `age` for others. Default: 500 and 5
    /// ms.
    pub fn settle_batch(mut self, size: usize, age: Duration) -> Self {
        self.settle_batch = Some((size, age));
        self
    }

    /// Prunes delivered messages past their retention about this often while the worker runs, in small steps; `None`: never, if
    /// `postrider gc` does it. Default: every ten minutes.
    pub fn prune_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.prune_interval = interval.into();
        self
    }

    /// Polls only: for databases behind a pooler that breaks LISTEN, and for producers that never notify.
    pub fn without_notifications(mut self) -> Self {
        self.has_notifications = false;
        self
    }

    /// Checks the settings and builds the worker.
    ///
    /// # Errors
    /// Names the first invalid setting and the valid values.
    pub fn build(self) -> Result<Worker, Invalid> {
        if self.queues.is_empty() {
            return Err(Invalid::rule("queues", "a worker needs at least one: add it with `queue`"));
        }
        if self.concurrency == Some(0) {
            return Err(Invalid::rule("concurrency", "is 0; nothing would ever run: set at least 1"));
        }
        let shared = Arc::new(self.shared);
        check_prune_interval(self.prune_interval)?;
        let mut engine = DeliveryEngine::new(&self.backend).with_prune_interval(self.prune_interval);
        if !self.has_notifications {
            engine = engine.without_notifications();
        }
        if let Some(concurrency) = self.concurrency {
            engine = engine.with_concurrency(concurrency);
        }
        if let Some((size, age)) = self.settle_batch {
            engine = engine.with_settle_batch(size, age);
        }
        #[cfg(feature = "testing")]
        let fault_slot = fault_injection::FaultSlot::default();
        let mut setup = Setup::default();
        for queue in self.queues {
            setup.warnings.extend(queue.warnings());
            if let Some(policy) = &queue.policy {
                policy.check()?;
                setup.policies.push((QueueName::new(queue.name.as_str())?, policy.clone()));
            }
            let subscription = queue.subscription(
                Arc::clone(&shared),
                #[cfg(feature = "testing")]
                &fault_slot,
            )?;
            engine = engine.subscribe(subscription)?;
        }
        Ok(Worker {
            backend: self.backend,
            engine,
            setup,
            #[cfg(feature = "testing")]
            fault_slot,
        })
    }
}
