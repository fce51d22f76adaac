//! A queue of a worker: its handlers and settings.

use super::{
    Context, Failure, Tx,
    deliver::Handlers,
    handler::{Handle, Plain, Typed, event, json},
    transaction::Transactional,
};
use crate::{
    context::Shared,
    delivery_loop::{MAX_BYTES_IN_FLIGHT, Subscription},
    failure_policy::{ErrorText, FailurePolicy},
};
use postrider_core::{
    Event, Invalid, QueueName, QueuePolicy, RetryStrategy, TenantId, TenantWeights, TxBackend, retry::Retry,
};
use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, fmt, future::Future, sync::Arc, time::Duration};

/// One queue of a worker: its handlers, and how they run.
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
    fallback: Option<Arc<dyn Handle>>,
    unknown: OnUnknownType,
    concurrency: usize,
    weight: u32,
    tenant_weights: Vec<(String, u32)>,
    prefetch: Option<usize>,
    max_bytes_in_flight: usize,
    lease_for: Duration,
    max_lease: Duration,
    timeout: Duration,
    retry: Arc<dyn Retry>,
    /// The error of an invalid retry strategy, returned when the worker is built.
    bad_retry: Option<Invalid>,
    max_attempts: Option<u32>,
    max_deliveries: Option<u32>,
    rate_limit: Option<(u32, Duration)>,
    poll_interval: Option<(Duration, Duration)>,
    error_text: ErrorText,
    pub(super) policy: Option<QueuePolicy>,
}

/// Policy for messages whose type has no handler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnUnknownType {
    /// Dead-letter it at once: visible, stored, and ready to be requeued when there is a handler.
    #[default]
    Reject,
    /// Retry it, by the queue's retry strategy: for workers of two versions side by side.
    Retry,
    /// Count it as delivered.
    Ignore,
}

impl Queue {
    /// A queue without handlers. The name is checked when the worker is built.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            handlers: Vec::new(),
            fallback: None,
            unknown: OnUnknownType::default(),
            concurrency: 10,
            weight: 1,
            tenant_weights: Vec::new(),
            prefetch: None,
            max_bytes_in_flight: MAX_BYTES_IN_FLIGHT,
            lease_for: Duration::from_secs(60),
            max_lease: Duration::from_secs(15 * 60),
            timeout: Duration::from_secs(30),
            max_attempts: RetryStrategy::default().max_attempts(),
            retry: Arc::new(RetryStrategy::default()),
            bad_retry: None,
            max_deliveries: Some(25),
            rate_limit: None,
            poll_interval: None,
            error_text: ErrorText::default(),
            policy: None,
        }
    }

    /// Registers the handler of one event type.
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

    /// Registers a handler of one event type that runs in a transaction of the store's own database: the handler's writes,
    /// the messages that it stages, and the settlement of the message commit together, so the effect happens exactly once.
    pub fn on_in_transaction<E, S, F, R, G>(mut self, store: &S, handler: F) -> Self
    where
        E: Event + Send + 'static,
        S: TxBackend,
        F: Fn(E, Tx<S::Tx>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure> + Send + 'static,
    {
        let handler = Transactional { decode: event(), store: store.clone(), run: handler };
        self.handlers.push((E::TYPE, Arc::new(handler)));
        self
    }

    /// Registers the handler of all messages without a handler of their own, whatever their type. The payload is decoded
    /// from JSON.
    pub fn on_json<T, F, R, G>(mut self, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(T, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure>,
    {
        self.fallback = Some(Arc::new(Typed { decode: json(), run: handler }));
        self
    }

    /// Registers the handler of all messages without a handler of their own, whatever their type. The handler reads the
    /// payload itself.
    pub fn on_any<F, R, G>(mut self, handler: F) -> Self
    where
        F: Fn(Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), G>> + Send + 'static,
        G: Into<Failure>,
    {
        self.fallback = Some(Arc::new(Plain(handler)));
        self
    }

    /// Policy for messages whose type has no handler; default: they are dead-lettered.
    pub fn on_unknown(mut self, unknown: OnUnknownType) -> Self {
        self.unknown = unknown;
        self
    }

    /// Concurrency: the maximum number of handlers that run at once; default 10.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Share among the queues of the worker under load; default 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// A tenant's share of the claimed messages, on a queue whose policy is
    /// [`fair_by_tenant`](QueuePolicy::fair_by_tenant); default 1. Each process shares out its own claims.
    ///
    /// Claimed messages are handled in the order of turns; messages that are staged later are in the next claim. So a
    /// message of a quiet tenant waits for messages that are already in flight, and never for another tenant's backlog:
    /// [`prefetch`](Self::prefetch) bounds that wait.
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

    /// Prefetch: the maximum number of messages in flight, running ones included. Default: adapts to the speed of the
    /// handlers.
    pub fn prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// Byte budget: the worker claims no more while the payloads of the messages in flight add up to this; default 64 MiB. A claim may
    /// exceed it by its last messages, and by more when they are much larger than those before.
    pub fn max_bytes_in_flight(mut self, max_bytes_in_flight: usize) -> Self {
        self.max_bytes_in_flight = max_bytes_in_flight;
        self
    }

    /// Lease duration; default one minute. A lease is renewed while its message is in flight, so this is how long a message
    /// waits after a crash.
    pub fn lease_for(mut self, lease_for: Duration) -> Self {
        self.lease_for = lease_for;
        self
    }

    /// Maximum total lease time: a lease is renewed until it was held for this long; default 15 minutes.
    pub fn max_lease(mut self, max_lease: Duration) -> Self {
        self.max_lease = max_lease;
        self
    }

    /// Handler timeout: a handler that takes longer is stopped and counts as a failed attempt; default 30 seconds.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Retry strategy: when failed messages are retried, and after how many attempts they are dead-lettered.
    pub fn retry(mut self, retry: RetryStrategy) -> Self {
        self.max_attempts = retry.max_attempts();
        self.bad_retry = retry.check().err();
        self.retry = Arc::new(retry);
        self
    }

    /// A retry strategy that is decided by a function.
    pub fn retry_with(mut self, retry: impl Retry + 'static) -> Self {
        (self.max_attempts, self.bad_retry) = (None, None);
        self.retry = Arc::new(retry);
        self
    }

    /// Dead-letters a message, without running its handler, when its deliveries began this often and failed or never ended: its
    /// handler may be crashing the worker. A message that was only in flight when the worker crashed does not count: after two
    /// expired leases it is delivered in isolation, and only that counts. With a limit of 1, each expired lease counts. Default 25.
    pub fn max_deliveries(mut self, max_deliveries: u32) -> Self {
        self.max_deliveries = Some(max_deliveries);
        self
    }

    /// Never dead-letters a message because of the number of its deliveries.
    pub fn without_max_deliveries(mut self) -> Self {
        self.max_deliveries = None;
        self
    }

    /// Rate limit: claims at most `messages` per `per`, per process.
    pub fn rate_limit(mut self, messages: u32, per: Duration) -> Self {
        self.rate_limit = Some((messages, per));
        self
    }

    /// Poll interval while the queue is empty: grows from `shortest` to `longest`. Notifications wake the worker earlier.
    pub fn poll_interval(mut self, shortest: Duration, longest: Duration) -> Self {
        self.poll_interval = Some((shortest, longest));
        self
    }

    /// The part of an error that is stored with its message; default the name of its type.
    pub fn error_text(mut self, error_text: ErrorText) -> Self {
        self.error_text = error_text;
        self
    }

    /// Policy of the queue in the store, such as its ordering and its archive. It takes effect with
    /// [`declare`](super::Worker::declare).
    pub fn policy(mut self, policy: QueuePolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Configuration warnings.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let queue = &self.name;
        if self.max_lease < self.timeout {
            warnings.push(format!(
                "queue {queue}: a handler may run for {:?}, but its lease is renewed for {:?} only; another worker would start the \
                 message again before it ends: raise max_lease or lower the timeout",
                self.timeout, self.max_lease
            ));
        }
        if self.lease_for < self.timeout && self.lease_for < Duration::from_secs(1) {
            warnings.push(format!(
                "queue {queue}: a lease of {:?} has to be renewed several times a second while a handler runs for up to {:?}; a \
                 short pause of the process loses the lease: raise lease_for",
                self.lease_for, self.timeout
            ));
        }
        if let Some(prefetch) = self.prefetch {
            let rounds = prefetch.div_ceil(self.concurrency.max(1));
            let worst = self.timeout.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
            if worst > self.max_lease {
                warnings.push(format!(
                    "queue {queue}: {prefetch} messages in flight, {} at a time and up to {:?} each, may take {worst:?}, longer \
                     than leases are renewed ({:?}): lower prefetch or raise concurrency",
                    self.concurrency, self.timeout, self.max_lease
                ));
            }
        }
        if let (Some(max_deliveries), Some(max_attempts)) = (self.max_deliveries, self.max_attempts) {
            if max_attempts == 1 || self.never_retries() {
                if max_deliveries > 1 {
                    warnings.push(format!(
                        "queue {queue}: nothing is retried after a failure, but after crashes a message is run up to {max_deliveries} times: \
                         set max_deliveries to 1 to prevent that"
                    ));
                }
            } else if max_deliveries < max_attempts {
                warnings.push(format!(
                    "queue {queue}: messages are dead-lettered after {max_deliveries} deliveries, before their {max_attempts} \
                     attempts are used up: raise max_deliveries"
                ));
            }
        }
        if !self.tenant_weights.is_empty()
            && self.policy.as_ref().is_some_and(|policy| !policy.fair_by_tenant)
        {
            warnings.push(format!(
                "queue {queue}: tenant weights have no effect, because the queue is not fair by tenant: declare the policy with fair_by_tenant"
            ));
        }
        if self.policy.as_ref().is_some_and(|policy| !policy.dead_letters) {
            warnings.push(format!(
                "queue {queue}: dead letters are off: messages that fail permanently are deleted"
            ));
        }
        warnings
    }

    fn never_retries(&self) -> bool {
        let attempt = postrider_core::retry::Attempt { number: 1, elapsed: Duration::ZERO, error: "" };
        let verdict = postrider_core::retry::decide(self.retry.as_ref(), &attempt, &mut rand::rng());
        verdict == postrider_core::retry::Verdict::GiveUp
    }

    /// Converts the settings into a subscription of the delivery loop.
    pub(super) fn subscription(
        self,
        shared: Arc<Shared>,
        #[cfg(feature = "testing")] fault_slot: &super::fault_injection::FaultSlot,
    ) -> Result<Subscription, Invalid> {
        let name = QueueName::new(self.name)?;
        if self.handlers.is_empty() && self.fallback.is_none() {
            let rule = format!("queue {name} has none: add one with `on`, `on_json` or `on_any`");
            return Err(Invalid::rule("handlers", rule));
        }
        let mut handlers: BTreeMap<&'static str, Arc<dyn Handle>> = BTreeMap::new();
        for (event_type, handler) in self.handlers {
            if handlers.insert(event_type, handler).is_some() {
                let rule = format!("queue {name} has two for events of type {event_type}: register one");
                return Err(Invalid::rule("handlers", rule));
            }
        }
        if let Some(invalid) = self.bad_retry {
            return Err(invalid);
        }
        if self.max_deliveries == Some(0) {
            let rule = format!("is 0 for queue {name}; nothing would ever run: set at least 1");
            return Err(Invalid::rule("max_deliveries", rule));
        }
        if self.timeout.is_zero() {
            return Err(Invalid::rule(
                "timeout",
                format!("is zero for queue {name}; nothing could run: set a timeout above zero"),
            ));
        }
        let mut tenant_weights = TenantWeights::default();
        for (tenant, weight) in self.tenant_weights {
            tenant_weights = tenant_weights.with(TenantId::new(tenant)?, weight);
        }
        let deliver = Handlers {
            handlers,
            fallback: self.fallback,
            unknown: self.unknown,
            timeout: self.timeout,
            failure_policy: FailurePolicy { retry: self.retry, error_text: self.error_text },
            max_deliveries: self.max_deliveries,
            shared,
            #[cfg(feature = "testing")]
            fault_slot: fault_slot.clone(),
        };
        let mut subscription = Subscription::new(name, Arc::new(deliver))
            .with_concurrency(self.concurrency)
            .with_weight(self.weight)
            .with_max_bytes_in_flight(self.max_bytes_in_flight)
            .with_tenant_weights(tenant_weights)
            .with_lease_for(self.lease_for)
            .with_max_lease(self.max_lease);
        if let Some(prefetch) = self.prefetch {
            subscription = subscription.with_prefetch(prefetch);
        }
        if let Some((messages, per)) = self.rate_limit {
            subscription = subscription.with_rate_limit(messages, per);
        }
        if let Some((shortest, longest)) = self.poll_interval {
            subscription = subscription.with_poll_interval(shortest, longest);
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
