//! The saga runner: executes follow-ups on the shared delivery loop, or one batch at a time.

use super::{
    Abandonment, Completion, Resolver, SagaBackoff, advance::Plans, audit::AuditTarget,
    completion::OnComplete, deliver::FollowUpExecutor, resolver::Registry,
};
use crate::{
    delivery_loop::{DeliveryEngine, Subscription},
    failure::Failure,
    pruner::{PRUNE_INTERVAL, check_prune_interval},
    runner::{Report, Running, Stopped},
    setup::Setup,
    worker::Tx,
};
use postrider_core::{
    AuditSink, Backend, Error, Invalid, QueueName, QueuePolicy, TxBackend, follow_up, saga::Plan,
};
use std::{fmt, future::Future, sync::Arc, time::Duration};

/// Executes follow-ups and sagas until each has ended in a known state.
///
/// ```
/// # use postrider_core::{FollowUp, FollowUpExt, Reference};
/// # use postrider_engine::{Failure, saga::{Resolution, Resolver, ResolverCall, SagaRunner}};
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
///     async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure> {
///         println!("forget {}", call.reference().value());
///         Ok(Resolution::Done)
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
/// assert_eq!(runner.run_until_idle().await?.delivered, 1); // or `start`, or `run_until_signal`
/// # Ok(())
/// # }
/// ```
pub struct SagaRunner<S: TxBackend> {
    pub(super) executor: Arc<FollowUpExecutor<S>>,
    pub(super) queue: QueueName,
    pub(super) sink: Arc<dyn AuditSink>,
    engine: DeliveryEngine,
    setup: Setup,
}

/// Builder of a [`SagaRunner`]; [`build`](Self::build) checks the settings.
#[must_use = "a builder does nothing until it is built"]
pub struct SagaRunnerBuilder<S: TxBackend> {
    store: S,
    queue: String,
    resolvers: Vec<Arc<dyn Resolver>>,
    plans: Vec<Plan>,
    audit: AuditTarget,
    backoff: SagaBackoff,
    max_attempts: u32,
    concurrency: usize,
    timeout: Duration,
    keep_for: Option<Duration>,
    on_complete: OnComplete<S>,
    complete_to: Option<String>,
    on_abandoned: Option<Arc<dyn Fn(Abandonment) + Send + Sync>>,
    prune_interval: Option<Duration>,
}

impl<S: TxBackend> SagaRunner<S> {
    /// Starts building a runner of the follow-ups in a store: a `MemoryStore`, or the `transactions` of another store.
    pub fn builder(store: S) -> SagaRunnerBuilder<S> {
        SagaRunnerBuilder {
            store,
            queue: follow_up::QUEUE.to_owned(),
            resolvers: Vec::new(),
            plans: Vec::new(),
            audit: AuditTarget::StoreLedger,
            backoff: SagaBackoff::default(),
            max_attempts: 8,
            concurrency: 50,
            timeout: Duration::from_secs(60),
            keep_for: Some(Duration::from_secs(30 * 24 * 3600)),
            on_complete: OnComplete { callback: None, to: None, timeout: Duration::ZERO },
            complete_to: None,
            on_abandoned: None,
            prune_interval: Some(PRUNE_INTERVAL),
        }
    }

    /// Declares the queue's policy in the store: succeeded follow-ups are archived for a while, without their payload. Call
    /// it once after migrating.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn declare(&self) -> Result<(), Error> {
        self.setup.declare(&self.executor.store.backend()).await
    }

    /// Starts the runner. It runs until it is stopped. Call it within a tokio runtime.
    pub fn start(&self) -> Running {
        self.setup.log_warnings();
        self.engine.start()
    }

    /// Executes all follow-ups that are due now or come due meanwhile.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn run_until_idle(&self) -> Result<Report, Error> {
        self.engine.run_until_idle().await
    }

    /// Executes one batch of due follow-ups, all of its calls at once. For scheduled jobs: repeat it until
    /// [`Report::claimed`] is 0.
    ///
    /// # Errors
    /// When the store fails. Follow-ups in flight were settled, or are executed again when their lease expires.
    pub async fn run_batch(&self) -> Result<Report, Error> {
        self.engine.run_batch().await
    }

    /// Starts the runner, and stops it gracefully on the first SIGINT or SIGTERM, within `drain_timeout`. The second signal
    /// ends it at once: leases expire, and no message is lost.
    ///
    /// # Errors
    /// When no signal handler can be installed.
    pub async fn run_until_signal(&self, drain_timeout: Duration) -> std::io::Result<Stopped> {
        self.setup.log_warnings();
        self.engine.run_until_signal(drain_timeout).await
    }
}

impl<S: TxBackend> SagaRunnerBuilder<S> {
    /// Adds a resolver.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.resolvers.push(Arc::new(resolver));
        self
    }

    /// Adds a plan, whose sagas are executed; add each [`resolver`](Self::resolver) that it calls as well.
    pub fn plan(mut self, plan: Plan) -> Self {
        self.plans.push(plan);
        self
    }

    /// Queue of the follow-ups; default `follow-ups`. It must not be ordered by key.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = queue.into();
        self
    }

    /// Audit sink for outcomes, written before they take effect. Default: the ledger of the store's own database, in the
    /// transaction of the outcome. Do not pass that ledger here: it would be locked by that transaction.
    pub fn audit(mut self, sink: impl AuditSink) -> Self {
        self.audit = AuditTarget::Sink(Arc::new(sink));
        self
    }

    /// Backoff between attempts, and lease duration.
    pub fn retry(mut self, backoff: SagaBackoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Abandons a follow-up after this many attempts; default 8.
    pub fn max_attempts(mut self, max_attempts: u32) -> Self {
        self.max_attempts = max_attempts;
        self
    }

    /// Concurrency: the maximum number of calls at once, and of follow-ups in flight; default 50.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Timeout of a call, and of the callback of a completion: what takes longer is cancelled and retried; default one
    /// minute. It must be shorter than the lease.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Prunes succeeded follow-ups past their retention about this often while the runner runs, in small steps; `None`: never, if
    /// `postrider gc` does it. Default: every ten minutes.
    pub fn prune_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.prune_interval = interval.into();
        self
    }

    /// Retention of succeeded follow-ups, without their payload; default 30 days, `None` keeps none. Takes effect with
    /// [`declare`](SagaRunner::declare).
    pub fn keep_for(mut self, keep_for: impl Into<Option<Duration>>) -> Self {
        self.keep_for = keep_for.into();
        self
    }

    /// Callback in the transaction in which the last follow-up of a subject and an operation succeeds, or a saga completes
    /// or is compensated: its writes and staged messages commit with that, or not at all. If it fails, panics or exceeds the
    /// timeout, nothing has happened, and the follow-up is retried. The subject is locked meanwhile: be brief.
    pub fn on_complete<F, R>(mut self, callback: F) -> Self
    where
        F: Fn(Tx<S::Tx>, Completion) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.on_complete.callback = Some(Arc::new(move |tx, completed| Box::pin(callback(tx, completed))));
        self
    }

    /// Stages a message of the type `follow-ups.completed` in this queue when the last follow-up of a subject and an
    /// operation succeeds, in the same transaction; for a saga also one of the type `follow-ups.compensated`.
    pub fn complete_to(mut self, queue: impl Into<String>) -> Self {
        self.complete_to = Some(queue.into());
        self
    }

    /// Hook for each abandoned follow-up, called after the abandonment is recorded: for alerts. It cannot stop the runner,
    /// nor undo anything.
    pub fn on_abandoned(mut self, hook: impl Fn(Abandonment) + Send + Sync + 'static) -> Self {
        self.on_abandoned = Some(Arc::new(hook));
        self
    }

    /// Checks the settings and builds the runner.
    ///
    /// # Errors
    /// Names the first invalid setting and the valid values.
    pub fn build(mut self) -> Result<SagaRunner<S>, Invalid> {
        let queue = QueueName::new(self.queue)?;
        let mut registry = Registry::default();
        for resolver in self.resolvers {
            registry.register(resolver)?;
        }
        if registry.is_empty() {
            return Err(Invalid::rule("resolvers", "a runner needs at least one: add it with `resolver`"));
        }
        let mut plans = Plans::default();
        for plan in self.plans {
            registry.check(&plan)?;
            plans.declare(plan)?;
        }
        if self.max_attempts == 0 {
            return Err(Invalid::rule("max_attempts", "is 0; nothing would ever be called: set at least 1"));
        }
        if self.concurrency == 0 {
            return Err(Invalid::rule("concurrency", "is 0; nothing would ever be called: set at least 1"));
        }
        if self.timeout.is_zero() || self.timeout >= self.backoff.lease() {
            let rule = format!(
                "is {:?}: it must be above zero and shorter than the lease of {:?}, or another runner would make the same call at the same \
                 time",
                self.timeout,
                self.backoff.lease()
            );
            return Err(Invalid::rule("timeout", rule));
        }
        self.on_complete.timeout = self.timeout;
        self.on_complete.to = self.complete_to.map(QueueName::new).transpose()?;
        let sink = match &self.audit {
            AuditTarget::StoreLedger => self.store.ledger(),
            AuditTarget::Sink(sink) => Arc::clone(sink),
        };
        let backend: Arc<dyn Backend> = Arc::new(self.store.backend());
        let executor = Arc::new(FollowUpExecutor {
            store: self.store,
            registry,
            plans,
            audit: self.audit,
            backoff: self.backoff,
            max_attempts: self.max_attempts,
            timeout: self.timeout,
            on_complete: self.on_complete,
            on_abandoned: self.on_abandoned,
        });
        let subscription = Subscription::new(queue.clone(), Arc::clone(&executor) as _)
            .with_concurrency(self.concurrency)
            // A claim is an attempt: a follow-up that was not started must not lose one when the runner dies, nor
            // wait for its lease.
            .with_prefetch(self.concurrency)
            .with_lease_for(self.backoff.lease());
        check_prune_interval(self.prune_interval)?;
        let engine =
            DeliveryEngine::new(&backend).with_prune_interval(self.prune_interval).subscribe(subscription)?;
        let policy = QueuePolicy { keep_for: self.keep_for, ..QueuePolicy::default() };
        policy.check()?;
        let setup = Setup { policies: vec![(queue.clone(), policy)], ..Setup::default() };
        Ok(SagaRunner { executor, queue, sink, engine, setup })
    }
}

impl<S: TxBackend> fmt::Debug for SagaRunner<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaRunner").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<S: TxBackend> fmt::Debug for SagaRunnerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SagaRunnerBuilder").field("queue", &self.queue).finish_non_exhaustive()
    }
}
