//! The runner: follow-ups on the shared loop, or one batch at a time.

use super::{
    Abandoned, Backoff, Completed, Resolver, books::Books, completion::OnComplete, courier::Courier,
    plot::Plans, resolver::Registry,
};
use crate::{
    carry::{Carrier, Running, Stopped, Subscription, Tally},
    failure::Failure,
    set_up::SetUp,
    worker::Tx,
};
use postrider_core::{
    AuditSink, Error, Follow, Invalid, QueueName, QueuePolicy, follow_up, saga::Plan, schema::Schema,
};
use std::{fmt, future::Future, sync::Arc, time::Duration};

/// Carries out follow-ups until each has ended in a known state.
///
/// ```
/// # use postrider_core::{FollowUp, FollowUpExt, Reference};
/// # use postrider_engine::{Failure, saga::{Call, Resolved, Resolver, SagaRunner}};
/// # use postrider_stores::memory::MemoryStore;
/// struct Mailer;
///
/// #[async_trait::async_trait]
/// impl Resolver for Mailer {
///     fn name(&self) -> &str {
///         "mailer"
///     }
///
///     fn operations(&self) -> &[&str] {
///         &["erase"]
///     }
///
///     async fn resolve(&self, call: &Call) -> Result<Resolved, Failure> {
///         println!("forget {}", call.reference().value());
///         Ok(Resolved::Done)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new();
/// let mut tx = store.begin(); // the transaction in which the customer is erased here
/// let erase = FollowUp::new("customer-17", "mailer", "erase", Reference::new("contact", "c-99"))?;
/// store.follow_up(&mut tx, [erase]).await?;
/// tx.commit();
///
/// let runner = SagaRunner::builder(store).resolver(Mailer).build()?;
/// assert_eq!(runner.run_once().await?, 1); // or `start`, or `run_until_signal`
/// # Ok(())
/// # }
/// ```
pub struct SagaRunner<S: Follow> {
    pub(super) courier: Arc<Courier<S>>,
    pub(super) queue: QueueName,
    pub(super) sink: Arc<dyn AuditSink>,
    carrier: Carrier,
    batch_size: usize,
    set_up: SetUp,
}

/// Collects what a runner needs; [`build`](Self::build) checks it all.
#[must_use = "a builder does nothing until it is built"]
pub struct SagaRunnerBuilder<S: Follow> {
    store: S,
    queue: String,
    resolvers: Vec<Arc<dyn Resolver>>,
    plans: Vec<Plan>,
    books: Books,
    backoff: Backoff,
    max_attempts: u32,
    batch_size: usize,
    timeout: Duration,
    keep_for: Option<Duration>,
    on_complete: OnComplete<S>,
    complete_to: Option<String>,
    on_abandoned: Option<Arc<dyn Fn(Abandoned) + Send + Sync>>,
}

impl<S: Follow> SagaRunner<S> {
    /// Begins a runner of the follow-ups in a store: a `MemoryStore`, or what the other stores' `transactions` gives.
    pub fn builder(store: S) -> SagaRunnerBuilder<S> {
        SagaRunnerBuilder {
            store,
            queue: follow_up::QUEUE.to_owned(),
            resolvers: Vec::new(),
            plans: Vec::new(),
            books: Books::Own,
            backoff: Backoff::default(),
            max_attempts: 8,
            batch_size: 50,
            timeout: Duration::from_secs(60),
            keep_for: Some(Duration::from_secs(30 * 24 * 3600)),
            on_complete: OnComplete { callback: None, to: None },
            complete_to: None,
            on_abandoned: None,
        }
    }

    /// Declares the queue's policy in the store: that what has succeeded is kept for a while, without its payload. Call it once after
    /// migrating.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn declare(&self, schema: &dyn Schema) -> Result<(), Error> {
        self.set_up.declare(schema).await
    }

    /// Carries out one batch of what is due, all calls of it at once, and answers how many follow-ups that were. For jobs that are
    /// started by a clock: call it until it answers 0.
    ///
    /// # Errors
    /// When the store fails. What was in hand is carried out again when its lease has lapsed.
    pub async fn run_once(&self) -> Result<usize, Error> {
        self.carrier.run_batch(self.batch_size).await
    }

    /// Starts, and goes on until it is stopped. Call it within a runtime of tokio.
    pub fn start(&self) -> Running {
        self.set_up.tell_traps();
        self.carrier.start()
    }

    /// Carries out what is due now, and what comes due while it does.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn run_until_idle(&self) -> Result<Tally, Error> {
        self.carrier.run_until_idle().await
    }

    /// Starts, and stops on the first SIGINT or SIGTERM within `deadline`. On the second it ends at once.
    ///
    /// # Errors
    /// When signals cannot be listened for.
    pub async fn run_until_signal(&self, deadline: Duration) -> std::io::Result<Stopped> {
        self.set_up.tell_traps();
        self.carrier.run_until_signal(deadline).await
    }
}

impl<S: Follow> SagaRunnerBuilder<S> {
    /// Carries out what calls for this resolver.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.resolvers.push(Arc::new(resolver));
        self
    }

    /// Carries out sagas of this plan; whoever it calls has to be there as a [`resolver`](Self::resolver).
    pub fn plan(mut self, plan: Plan) -> Self {
        self.plans.push(plan);
        self
    }

    /// Carries out the follow-ups of this queue; of `follow-ups` unless said otherwise. It must not be ordered by key.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Tells outcomes to this sink before they are so. Otherwise they are told in the ledger of the store's own database, in the
    /// transaction of the outcome. Do not give that one here: it would be asked while a transaction holds it.
    pub fn audit(mut self, sink: impl AuditSink) -> Self {
        self.books = Books::Other(Arc::new(sink));
        self
    }

    /// When follow-ups are tried again, and how long a claim protects them.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Gives a follow-up up after so many attempts; 8 unless said otherwise.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Carries out up to so many at once, and takes no more in hand; 50 unless said otherwise.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Stops a call that takes longer, and tries again; a minute unless said otherwise. It must be shorter than the lease.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long succeeded follow-ups are kept, without their payload; 30 days unless said otherwise, `None` keeps none. Holds when it is
    /// [declared](SagaRunner::declare).
    pub fn keep_for(mut self, keep_for: impl Into<Option<Duration>>) -> Self {
        self.keep_for = keep_for.into();
        self
    }

    /// Runs in the transaction in which the last follow-up of a subject and an operation lands, or a saga ends, one way or the other: what it writes and stages commits with that,
    /// or not at all. If it fails, nothing has happened, and the follow-up is tried again. The subject is locked meanwhile: be brief.
    pub fn on_complete<F, R>(mut self, callback: F) -> Self
    where
        F: Fn(Tx<S::Tx>, Completed) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.on_complete.callback = Some(Arc::new(move |tx, completed| Box::pin(callback(tx, completed))));
        self
    }

    /// Stages a message of the type `follow-ups.completed` in this queue when the last follow-up of a subject and an operation lands, in the
    /// same transaction; of a saga also one of the type `follow-ups.compensated`.
    pub fn complete_to(mut self, queue: impl Into<String>) -> Self {
        self.complete_to = Some(queue.into());
        self
    }

    /// Is told of each follow-up that is given up, after that is so: to wake somebody. It cannot break the runner, nor undo anything.
    pub fn on_abandoned(mut self, hook: impl Fn(Abandoned) + Send + Sync + 'static) -> Self {
        self.on_abandoned = Some(Arc::new(hook));
        self
    }

    /// Checks everything and makes the runner.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does.
    pub fn build(mut self) -> Result<SagaRunner<S>, Invalid> {
        let queue = QueueName::new(self.queue)?;
        let mut registry = Registry::default();
        for resolver in self.resolvers {
            registry.register(resolver)?;
        }
        if registry.is_empty() {
            return Err(Invalid::rule("resolvers", "a runner needs at least one: give it with `resolver`"));
        }
        let mut plans = Plans::default();
        for plan in self.plans {
            registry.check(&plan)?;
            plans.declare(plan)?;
        }
        if self.max_attempts == 0 {
            return Err(Invalid::rule("max_attempts", "is 0; nothing would ever be tried: give at least 1"));
        }
        if self.batch_size == 0 {
            return Err(Invalid::rule("batch_size", "is 0; nothing would ever be called: give at least 1"));
        }
        if self.timeout.is_zero() || self.timeout >= self.backoff.lease() {
            let rule = format!(
                "is {:?}; it must be more than nothing and shorter than the lease of {:?}, or another runner would make the same \
                 call while it is under way",
                self.timeout,
                self.backoff.lease()
            );
            return Err(Invalid::rule("timeout", rule));
        }
        self.on_complete.to = self.complete_to.map(QueueName::new).transpose()?;
        let sink = match &self.books {
            Books::Own => self.store.ledger(),
            Books::Other(sink) => Arc::clone(sink),
        };
        let store = Arc::new(Follow::store(&self.store));
        let courier = Arc::new(Courier {
            store: self.store,
            registry,
            plans,
            books: self.books,
            backoff: self.backoff,
            max_attempts: self.max_attempts,
            timeout: self.timeout,
            on_complete: self.on_complete,
            on_abandoned: self.on_abandoned,
        });
        let subscription = Subscription::new(queue.clone(), Arc::clone(&courier) as _)
            .with_concurrency(self.batch_size)
            // A claim is an attempt: what nobody has begun must not lose one when the runner dies, nor wait for its lease.
            .with_prefetch(self.batch_size)
            .with_lease_for(self.backoff.lease());
        let carrier = Carrier::new(Arc::clone(&store) as _, Some(store as _)).subscribe(subscription)?;
        let policy = QueuePolicy { keep_for: self.keep_for, ..QueuePolicy::default() };
        policy.check()?;
        let set_up = SetUp { policies: vec![(queue.clone(), policy)], ..SetUp::default() };
        Ok(SagaRunner { courier, queue, sink, carrier, batch_size: self.batch_size, set_up })
    }
}

impl<S: Follow> fmt::Debug for SagaRunner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaRunner").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<S: Follow> fmt::Debug for SagaRunnerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaRunnerBuilder").field("queue", &self.queue).finish_non_exhaustive()
    }
}
