//! What a worker does with one queue.

use super::{
    Context, Failure, Tx,
    deliver::Handlers,
    handler::{Handle, Plain, Typed, event, json},
    transaction::Transactional,
};
use crate::{
    carry::Subscription,
    judge::{ErrorText, Judge},
};
use postrider_core::{
    Event, Invalid, QueueName, QueuePolicy, RetryStrategy, TenantId, TenantWeights, retry::Retry,
    transact::Transact,
};
use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, fmt, future::Future, sync::Arc, time::Duration};

/// One queue of a worker: its handlers, and how they are run.
///
/// ```
/// # use postrider_core::{Event, Json, RetryStrategy};
/// # use postrider_engine::{Context, Failure, Queue};
/// # use std::time::Duration;
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct OrderPlaced { order: u64 }
/// # impl Event for OrderPlaced {
/// #     const TYPE: &'static str = "order.placed";
/// #     const QUEUE: &'static str = "orders";
/// #     type Codec = Json;
/// # }
/// async fn ship(event: OrderPlaced, context: Context) -> Result<(), Failure> {
///     println!("order {}, attempt {}", event.order, context.attempt());
///     Ok(())
/// }
///
/// let orders = Queue::new("orders")
///     .on(ship)
///     .concurrency(50)
///     .timeout(Duration::from_secs(10))
///     .retry(RetryStrategy::constant(Duration::from_secs(5)));
/// ```
#[must_use = "a queue does nothing until a worker has it"]
pub struct Queue {
    pub(super) name: String,
    handlers: Vec<(&'static str, Arc<dyn Handle>)>,
    otherwise: Option<Arc<dyn Handle>>,
    unknown: Unknown,
    concurrency: usize,
    weight: u32,
    tenant_weights: Vec<(String, u32)>,
    prefetch: Option<usize>,
    lease_for: Duration,
    hold_for: Duration,
    timeout: Duration,
    retry: Arc<dyn Retry>,
    /// What is wrong with it, told when the worker is built.
    bad_retry: Option<Invalid>,
    max_attempts: Option<u32>,
    max_deliveries: Option<u32>,
    rate: Option<(u32, Duration)>,
    waits: Option<(Duration, Duration)>,
    error_text: ErrorText,
    pub(super) policy: Option<QueuePolicy>,
}

/// What happens to a message of a type that no handler is for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Unknown {
    /// It becomes a dead letter at once: seen, kept, and ready to be requeued when there is a handler.
    #[default]
    Reject,
    /// It is retried, as the queue's strategy says: for workers of two versions side by side.
    Retry,
    /// It counts as delivered.
    Ignore,
}

impl Queue {
    /// The queue of this name, without handlers yet. The name is checked when the worker is built.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            handlers: Vec::new(),
            otherwise: None,
            unknown: Unknown::default(),
            concurrency: 10,
            weight: 1,
            tenant_weights: Vec::new(),
            prefetch: None,
            lease_for: Duration::from_secs(60),
            hold_for: Duration::from_secs(15 * 60),
            timeout: Duration::from_secs(30),
            max_attempts: RetryStrategy::default().max_attempts(),
            retry: Arc::new(RetryStrategy::default()),
            bad_retry: None,
            max_deliveries: Some(25),
            rate: None,
            waits: None,
            error_text: ErrorText::default(),
            policy: None,
        }
    }

    /// Handles the events of one type.
    pub fn on<E, F, R, G>(mut self, handler: F) -> Self
    where
        E: Event + Send + 'static,
        F: Fn(E, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure>,
    {
        self.handlers.push((E::TYPE, Arc::new(Typed { decode: event(), run: handler })));
        self
    }

    /// Handles the events of one type in a transaction of the store's own database: what the handler writes and stages in it
    /// and the end of the message commit together, so that the effect happens exactly once.
    pub fn on_in_transaction<E, S, F, R, G>(mut self, store: &S, handler: F) -> Self
    where
        E: Event + Send + 'static,
        S: Transact,
        F: Fn(E, Tx<S::Tx>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure> + Send + 'static,
    {
        let handler = Transactional { decode: event(), store: store.clone(), run: handler };
        self.handlers.push((E::TYPE, Arc::new(handler)));
        self
    }

    /// Handles every message that no other handler is for, whatever its type, reading its payload as JSON.
    pub fn on_json<T, F, R, G>(mut self, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure>,
    {
        self.otherwise = Some(Arc::new(Typed { decode: json(), run: handler }));
        self
    }

    /// Handles every message that no other handler is for, whatever its type: the handler reads the payload itself.
    pub fn on_any<F, R, G>(mut self, handler: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure>,
    {
        self.otherwise = Some(Arc::new(Plain(handler)));
        self
    }

    /// What happens to a message that no handler is for. Otherwise it becomes a dead letter.
    pub fn on_unknown(mut self, unknown: Unknown) -> Self {
        self.unknown = unknown;
        self
    }

    /// Runs up to so many handlers at once; 10 unless said otherwise.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Its share among the queues of the worker when there is more to do than can be run at once; 1 unless said otherwise.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// A tenant's share of what is claimed, on a queue whose policy is
    /// [`fair_by_tenant`](QueuePolicy::fair_by_tenant); 1 unless said otherwise. Each process shares out what it claims.
    ///
    /// What was claimed is handled in the order of turns, and what comes in later is in the next claim. So a message of a quiet
    /// tenant waits for what is in hand already, and never for another's backlog: [`prefetch`](Self::prefetch) bounds that.
    ///
    /// ```
    /// # use postrider_core::QueuePolicy;
    /// # use postrider_engine::{Context, Failure, Queue};
    /// # async fn send(context: Context) -> Result<(), Failure> { Ok(()) }
    /// let mails = Queue::new("mails")
    ///     .on_any(send)
    ///     .policy(QueuePolicy::default().fair_by_tenant())
    ///     .tenant_weight("acme", 3);
    /// ```
    pub fn tenant_weight(mut self, tenant: impl Into<String>, weight: u32) -> Self {
        self.tenant_weights.push((tenant.into(), weight));
        self
    }

    /// Holds up to so many messages at once, those that run included. Otherwise that follows how fast they are handled.
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// Leases messages for so long at a time; a minute unless said otherwise. A lease is renewed while its message is in
    /// hand, so this is how long a message waits after a crash.
    pub fn lease_for(mut self, lease_for: Duration) -> Self {
        self.lease_for = lease_for;
        self
    }

    /// Renews a lease until it was held for so long in all; 15 minutes unless said otherwise.
    pub fn hold_for(mut self, hold_for: Duration) -> Self {
        self.hold_for = hold_for;
        self
    }

    /// Stops a handler that takes longer, and counts a failed attempt; 30 seconds unless said otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// When failed messages are tried again, and when they are given up.
    pub fn retry(mut self, retry: RetryStrategy) -> Self {
        self.max_attempts = retry.max_attempts();
        self.bad_retry = retry.check().err();
        self.retry = Arc::new(retry);
        self
    }

    /// The same, decided by a function.
    pub fn retry_with(mut self, retry: impl Retry + 'static) -> Self {
        (self.max_attempts, self.bad_retry) = (None, None);
        self.retry = Arc::new(retry);
        self
    }

    /// Gives a message up, without running its handler, when it was claimed more often than this: it may be what kills its
    /// workers. 25 unless said otherwise.
    pub fn max_deliveries(mut self, max_deliveries: u32) -> Self {
        self.max_deliveries = Some(max_deliveries);
        self
    }

    /// Never gives a message up because of how often it was claimed.
    pub fn without_max_deliveries(mut self) -> Self {
        self.max_deliveries = None;
        self
    }

    /// Claims at most so many messages in so long. Each process counts for itself.
    pub fn rate(mut self, messages: u32, per: Duration) -> Self {
        self.rate = Some((messages, per));
        self
    }

    /// While there is nothing to do, looks again after at least and at most so long. Signals come besides.
    pub fn waits(mut self, shortest: Duration, longest: Duration) -> Self {
        self.waits = Some((shortest, longest));
        self
    }

    /// What is kept of an error with its message. Otherwise the name of its type.
    pub fn error_text(mut self, error_text: ErrorText) -> Self {
        self.error_text = error_text;
        self
    }

    /// Declares what holds for the queue in the store, such as its ordering and its archive, when the worker is started
    /// with [`declare`](super::Worker::declare).
    pub fn policy(mut self, policy: QueuePolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Settings that work, but seldom as meant.
    pub(super) fn traps(&self) -> Vec<String> {
        let mut traps = Vec::new();
        let queue = &self.name;
        if self.hold_for < self.timeout {
            traps.push(format!(
                "queue {queue}: a handler may run for {:?}, but its lease is renewed for {:?} only; another worker would \
                 start over before it ends: raise hold_for or lower the timeout",
                self.timeout, self.hold_for
            ));
        }
        if self.lease_for < self.timeout && self.lease_for < Duration::from_secs(1) {
            traps.push(format!(
                "queue {queue}: a lease of {:?} has to be renewed several times a second while a handler runs for up to {:?}; a \
                 short pause of the process loses it: raise lease_for",
                self.lease_for, self.timeout
            ));
        }
        if let Some(prefetch) = self.prefetch {
            let rounds = prefetch.div_ceil(self.concurrency.max(1));
            let worst = self.timeout.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
            if worst > self.hold_for {
                traps.push(format!(
                    "queue {queue}: {prefetch} messages in hand, {} at a time and up to {:?} each, may take {worst:?}, longer \
                     than leases are renewed ({:?}): lower prefetch or raise concurrency",
                    self.concurrency, self.timeout, self.hold_for
                ));
            }
        }
        if let (Some(max_deliveries), Some(max_attempts)) = (self.max_deliveries, self.max_attempts) {
            if max_attempts == 1 || self.never_retries() {
                if max_deliveries > 1 {
                    traps.push(format!(
                        "queue {queue}: nothing is retried after a failure, but a message that was claimed before is run up to \
                         {max_deliveries} times after crashes: set max_deliveries to 1 if that is not wanted"
                    ));
                }
            } else if max_deliveries < max_attempts {
                traps.push(format!(
                    "queue {queue}: messages are given up after {max_deliveries} deliveries, before their {max_attempts} \
                     attempts are used up: raise max_deliveries"
                ));
            }
        }
        if !self.tenant_weights.is_empty()
            && self.policy.as_ref().is_some_and(|policy| !policy.fair_by_tenant)
        {
            traps.push(format!(
                "queue {queue}: tenants have weights, but they do not take turns: declare the policy with fair_by_tenant"
            ));
        }
        if self.policy.as_ref().is_some_and(|policy| !policy.dead_letters) {
            traps.push(format!("queue {queue}: dead letters are off; what fails for good is deleted"));
        }
        traps
    }

    fn never_retries(&self) -> bool {
        let attempt = postrider_core::retry::Attempt { number: 1, elapsed: Duration::ZERO, error: "" };
        let verdict = postrider_core::retry::decide(self.retry.as_ref(), &attempt, &mut rand::rng());
        verdict == postrider_core::retry::Verdict::GiveUp
    }

    /// Makes of it what a carrier needs.
    pub(super) fn subscription(
        self,
        shared: Arc<super::context::Shared>,
        #[cfg(feature = "testing")] rehearsing: &super::rehearsal::Rehearsing,
    ) -> Result<Subscription, Invalid> {
        let name = QueueName::new(self.name)?;
        if self.handlers.is_empty() && self.otherwise.is_none() {
            let rule = format!("queue {name} has none: give it one with `on`, `on_json` or `on_any`");
            return Err(Invalid::rule("handlers", rule));
        }
        let mut handlers: BTreeMap<&'static str, Arc<dyn Handle>> = BTreeMap::new();
        for (event_type, handler) in self.handlers {
            if handlers.insert(event_type, handler).is_some() {
                let rule = format!("queue {name} has two for events of the type {event_type}");
                return Err(Invalid::rule("handlers", rule));
            }
        }
        if let Some(invalid) = self.bad_retry {
            return Err(invalid);
        }
        if self.max_deliveries == Some(0) {
            let rule = format!("is 0 for queue {name}; nothing would ever run: give at least 1");
            return Err(Invalid::rule("max_deliveries", rule));
        }
        if self.timeout.is_zero() {
            return Err(Invalid::rule("timeout", format!("is zero for queue {name}; nothing could run")));
        }
        let mut tenant_weights = TenantWeights::default();
        for (tenant, weight) in self.tenant_weights {
            tenant_weights = tenant_weights.with(TenantId::new(tenant)?, weight);
        }
        let deliver = Handlers {
            handlers,
            otherwise: self.otherwise,
            unknown: self.unknown,
            timeout: self.timeout,
            judge: Judge { retry: self.retry, error_text: self.error_text },
            max_deliveries: self.max_deliveries,
            shared,
            #[cfg(feature = "testing")]
            rehearsing: rehearsing.clone(),
        };
        let mut subscription = Subscription::new(name, Arc::new(deliver))
            .with_concurrency(self.concurrency)
            .with_weight(self.weight)
            .with_tenant_weights(tenant_weights)
            .with_lease_for(self.lease_for)
            .with_hold_for(self.hold_for);
        if let Some(prefetch) = self.prefetch {
            subscription = subscription.with_prefetch(prefetch);
        }
        if let Some((messages, per)) = self.rate {
            subscription = subscription.with_rate(messages, per);
        }
        if let Some((shortest, longest)) = self.waits {
            subscription = subscription.with_waits(shortest, longest);
        }
        Ok(subscription)
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types: Vec<_> = self.handlers.iter().map(|(event_type, _)| event_type).collect();
        f.debug_struct("Queue").field("name", &self.name).field("on", &types).finish_non_exhaustive()
    }
}
