//! Routes: which queue goes to which destinations.

use super::{
    batcher::Batcher,
    deliver::{ResolvedTarget, SingleTarget},
    drain_gate::DrainGate,
    fan_out::{AnyTargetGate, FanOut},
};
use crate::{
    delivery_loop::{CircuitGate, Deliver, MAX_BYTES_IN_FLIGHT, Subscription},
    failure_policy::{ErrorText, FailurePolicy},
};
use postrider_core::{
    Backend, Format, Invalid, Message, MessageBuilder, Ordering, QueueName, QueuePolicy, RetryStrategy,
    Template, retry::Jitter,
};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// One queue of a relay, and its targets.
///
/// ```
/// # use postrider_core::Format;
/// # use postrider_engine::relay::{Route, RouteTarget};
/// let orders = Route::new("orders")
///     .to("billing", "orders.{type}")
///     .to_with(RouteTarget::new("audit", "{queue}").format(Format::Structured).filter(|message| message.tenant().is_some()));
/// ```
#[must_use = "a route does nothing until a relay has it"]
pub struct Route {
    pub(super) queue: String,
    targets: Vec<RouteTarget>,
    concurrency: usize,
    max_bytes_in_flight: usize,
    weight: u32,
    lease_for: Duration,
    max_lease: Duration,
    retry: RetryStrategy,
    max_deliveries: Option<u32>,
    error_text: ErrorText,
    rate_limit: Option<(u32, Duration)>,
    poll_interval: Option<(Duration, Duration)>,
    pub(super) policy: Option<QueuePolicy>,
}

/// One target of a route: a destination, the address there, and which messages go to it.
#[must_use = "a target does nothing until a route has it"]
pub struct RouteTarget {
    destination: String,
    address: String,
    format: Format,
    filter: Option<Filter>,
    transform: Option<Transform>,
}

pub(super) type Filter = Arc<dyn Fn(&Message) -> bool + Send + Sync>;
pub(super) type Transform = Arc<dyn Fn(&Message) -> MessageBuilder + Send + Sync>;

impl RouteTarget {
    /// A target at the destination of that name. `address` is an exchange and routing key, a subject, a topic, a stream or
    /// a URL, as a [`Template`] with placeholders such as `{type}`.
    pub fn new(destination: impl Into<String>, address: impl Into<String>) -> Self {
        Self {
            destination: destination.into(),
            address: address.into(),
            format: Format::default(),
            filter: None,
            transform: None,
        }
    }

    /// Message format on the wire; default CloudEvents in binary mode.
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// Relays only messages for which `filter` returns `true`; the others count as delivered here.
    pub fn filter(mut self, filter: impl Fn(&Message) -> bool + Send + Sync + 'static) -> Self {
        self.filter = Some(Arc::new(filter));
        self
    }

    /// Relays the message that `transform` returns instead: fewer fields, another type, another payload. The
    /// id stays. The returned message is validated like any message; an invalid one is dead-lettered.
    pub fn transform(
        mut self,
        transform: impl Fn(&Message) -> MessageBuilder + Send + Sync + 'static,
    ) -> Self {
        self.transform = Some(Arc::new(transform));
        self
    }

    fn open(
        &self,
        queue: &QueueName,
        batchers: &BTreeMap<String, Arc<Batcher>>,
    ) -> Result<ResolvedTarget, Invalid> {
        let Some(batcher) = batchers.get(&self.destination) else {
            let known: Vec<_> = batchers.keys().map(String::as_str).collect();
            let rule = format!(
                "{} is not defined, but queue {queue} refers to it: add it with `destination`. Defined: {}",
                self.destination,
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            );
            return Err(Invalid::rule("destination", rule));
        };
        Ok(ResolvedTarget {
            batcher: Arc::clone(batcher),
            queue: destination_queue(queue.as_str(), &self.destination)?,
            route_queue: queue.clone(),
            address: Template::parse(self.address.as_str())?,
            format: self.format,
            filter: self.filter.clone(),
            transform: self.transform.clone(),
        })
    }
}

impl Route {
    /// A route of the messages in `queue`.
    pub fn new(queue: impl Into<String>) -> Self {
        Self {
            queue: queue.into(),
            targets: Vec::new(),
            concurrency: 2_000,
            max_bytes_in_flight: MAX_BYTES_IN_FLIGHT,
            weight: 1,
            lease_for: Duration::from_secs(60),
            max_lease: Duration::from_secs(15 * 60),
            retry: RetryStrategy::default(),
            max_deliveries: Some(25),
            error_text: ErrorText::default(),
            rate_limit: None,
            poll_interval: None,
            policy: None,
        }
    }

    /// Adds a target: `address` at that destination.
    pub fn to(self, destination: impl Into<String>, address: impl Into<String>) -> Self {
        self.to_with(RouteTarget::new(destination, address))
    }

    /// Adds a target. Each target accepts or fails on its own: messages that one of them has not accepted yet wait in a
    /// per-destination queue, named `queue>destination`, and are not sent to the others again.
    pub fn to_with(mut self, to: RouteTarget) -> Self {
        self.targets.push(to);
        self
    }

    /// Concurrency: the maximum number of messages being published; default 2,000. As many again are claimed ahead and wait
    /// in memory, within [`max_bytes_in_flight`](Self::max_bytes_in_flight).
    pub fn concurrency(mut self, messages: usize) -> Self {
        self.concurrency = messages;
        self
    }

    /// Byte budget: the relay claims no more while the payloads of the messages in flight add up to this; default 64 MiB. A claim may
    /// exceed it by its last messages, and by more when they are much larger than those before.
    pub fn max_bytes_in_flight(mut self, max_bytes_in_flight: usize) -> Self {
        self.max_bytes_in_flight = max_bytes_in_flight;
        self
    }

    /// Share among the routes of one relay under load; default 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Lease duration; default one minute. A lease is renewed while its message is in flight.
    pub fn lease_for(mut self, lease_for: Duration) -> Self {
        self.lease_for = lease_for;
        self
    }

    /// Retry strategy of messages that a destination rejected temporarily. An unavailable destination consumes no attempts.
    pub fn retry(mut self, retry: RetryStrategy) -> Self {
        self.retry = retry;
        self
    }

    /// Dead-letters a message, without sending it, when its deliveries began this often and failed or never ended; default 25.
    /// A message that was only in flight when the relay crashed does not count: after two expired leases it is sent alone, and
    /// only that counts. With a limit of 1, each expired lease counts.
    pub fn max_deliveries(mut self, max_deliveries: u32) -> Self {
        self.max_deliveries = Some(max_deliveries);
        self
    }

    /// Never dead-letters a message because of the number of its deliveries.
    pub fn without_max_deliveries(mut self) -> Self {
        self.max_deliveries = None;
        self
    }

    /// The part of an error that is stored with its message; default its kind.
    pub fn error_text(mut self, error_text: ErrorText) -> Self {
        self.error_text = error_text;
        self
    }

    /// Rate limit: claims at most `messages` per `per`, per process.
    pub fn rate_limit(mut self, messages: u32, per: Duration) -> Self {
        self.rate_limit = Some((messages, per));
        self
    }

    /// Poll interval while the queue is empty: grows from `shortest` to `longest`. Notifications wake the relay earlier.
    pub fn poll_interval(mut self, shortest: Duration, longest: Duration) -> Self {
        self.poll_interval = Some((shortest, longest));
        self
    }

    /// Policy of the queue in the store, for [`declare`](super::Relay::declare). A route to several destinations needs it
    /// when its queue is ordered by key.
    pub fn policy(mut self, policy: QueuePolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The settings of a classic outbox relay: five attempts, with backoff that doubles from a second to five minutes with
    /// jitter, and leases of five minutes.
    pub fn classic(self) -> Self {
        let retry = RetryStrategy::exponential(Duration::from_secs(1), 2.0)
            .with_max_delay(Duration::from_secs(5 * 60))
            .with_jitter(Jitter::Equal)
            .with_max_attempts(5);
        self.retry(retry).lease_for(Duration::from_secs(5 * 60))
    }

    /// Configuration warnings.
    pub(super) fn warnings(&self) -> Vec<String> {
        let queue = &self.queue;
        let mut warnings = Vec::new();
        if let (Some(max_deliveries), Some(max_attempts)) = (self.max_deliveries, self.retry.max_attempts())
            && max_deliveries < max_attempts
        {
            warnings.push(format!(
                "queue {queue}: messages are dead-lettered after {max_deliveries} deliveries, before their {max_attempts} attempts \
                 are used up: raise max_deliveries"
            ));
        }
        if self.policy.as_ref().is_some_and(|policy| !policy.dead_letters) {
            warnings
                .push(format!("queue {queue}: dead letters are off: messages that a destination rejects permanently are deleted"));
        }
        warnings
    }

    /// Its queues: its own, and one per destination.
    pub(super) fn queues(&self) -> Result<Vec<QueueName>, Invalid> {
        let mut queues = vec![QueueName::new(self.queue.as_str())?];
        for to in &self.targets {
            queues.push(destination_queue(&self.queue, &to.destination)?);
        }
        Ok(queues)
    }

    /// The policies of its queues: of its own queue and, with several targets, of one queue per destination.
    pub(super) fn declared(&self) -> Result<Vec<(QueueName, QueuePolicy)>, Invalid> {
        let Some(policy) = &self.policy else { return Ok(Vec::new()) };
        let mut declared = vec![(QueueName::new(self.queue.as_str())?, policy.clone())];
        if self.targets.len() > 1 {
            // A message is archived once, not once more for each destination.
            let policy = QueuePolicy { keep_for: None, ..policy.clone() };
            for to in &self.targets {
                declared.push((destination_queue(&self.queue, &to.destination)?, policy.clone()));
            }
        }
        Ok(declared)
    }

    /// Its subscriptions: one for its queue, and one per destination. With a single destination, the latter delivers what earlier
    /// routes left.
    pub(super) fn open(
        self,
        source: &Arc<str>,
        batchers: &BTreeMap<String, Arc<Batcher>>,
        backend: &Arc<dyn Backend>,
    ) -> Result<Vec<Subscription>, Invalid> {
        let queue = QueueName::new(self.queue.as_str())?;
        let invalid = |field: &'static str, rule: String| Err(Invalid::rule(field, rule));
        if self.max_deliveries == Some(0) {
            let rule = format!("is 0 for queue {queue}; nothing would ever be sent: set at least 1");
            return invalid("max_deliveries", rule);
        }
        if self.concurrency == 0 {
            return invalid(
                "concurrency",
                format!("is 0 for queue {queue}; nothing would ever be sent: set at least 1"),
            );
        }
        self.retry.check()?;
        let is_ordered = self.policy.as_ref().is_some_and(|policy| policy.ordering != Ordering::Unordered);
        let mut targets = Vec::with_capacity(self.targets.len());
        for to in &self.targets {
            let target = Arc::new(to.open(&queue, batchers)?);
            if targets.iter().any(|other: &Arc<ResolvedTarget>| other.queue == target.queue) {
                return invalid(
                    "route",
                    format!(
                        "queue {queue} has the destination {} twice: give each destination once",
                        to.destination
                    ),
                );
            }
            targets.push(target);
        }
        let single_target =
            |target: &Arc<ResolvedTarget>, is_ordered: Option<bool>, drain_gate: Option<Arc<DrainGate>>| {
                let gate = match &drain_gate {
                    Some(gate) => Arc::clone(gate) as Arc<dyn CircuitGate>,
                    None => Arc::clone(&target.batcher.breaker) as Arc<dyn CircuitGate>,
                };
                let deliver = SingleTarget {
                    target: Arc::clone(target),
                    source: Arc::clone(source),
                    failure_policy: FailurePolicy {
                        retry: Arc::new(self.retry.clone()),
                        error_text: self.error_text.clone(),
                    },
                    max_deliveries: self.max_deliveries,
                    is_ordered,
                    drain_gate,
                };
                (Arc::new(deliver) as Arc<dyn Deliver>, gate)
            };
        match &targets[..] {
            [] => invalid("route", format!("queue {queue} has no destination: add one with `to`")),
            [target] => {
                let circuit = Arc::clone(&target.batcher.breaker) as Arc<dyn CircuitGate>;
                let (backend, left) = (Arc::clone(backend), target.queue.clone());
                let gate = Arc::new(DrainGate::new(circuit, backend, left));
                let direct = self.subscription(queue, single_target(target, None, Some(gate)));
                let left = self
                    .subscription(target.queue.clone(), single_target(target, None, None))
                    .with_concurrency(self.concurrency.min(LEFT_CONCURRENCY))
                    .with_poll_interval(LEFT_POLL.0, LEFT_POLL.1)
                    .without_notifications();
                Ok(vec![direct, left])
            }
            targets => {
                let deliver = FanOut {
                    targets: targets.to_vec(),
                    source: Arc::clone(source),
                    max_deliveries: self.max_deliveries,
                    is_ordered,
                };
                let gate =
                    AnyTargetGate(targets.iter().map(|target| Arc::clone(&target.batcher.breaker)).collect());
                let mut all = vec![self.subscription(queue, (Arc::new(deliver), Arc::new(gate)))];
                let each = targets
                    .iter()
                    .map(|target| (target.queue.clone(), single_target(target, Some(is_ordered), None)));
                all.extend(each.map(|(queue, delivering)| self.subscription(queue, delivering)));
                Ok(all)
            }
        }
    }

    fn subscription(
        &self,
        queue: QueueName,
        (deliver, gate): (Arc<dyn Deliver>, Arc<dyn CircuitGate>),
    ) -> Subscription {
        let mut subscription = Subscription::new(queue, deliver)
            .with_concurrency(self.concurrency)
            .with_max_bytes_in_flight(self.max_bytes_in_flight)
            .with_weight(self.weight)
            .with_lease_for(self.lease_for)
            .with_max_lease(self.max_lease)
            .with_gate(gate);
        if let Some((messages, per)) = self.rate_limit {
            subscription = subscription.with_rate_limit(messages, per);
        }
        if let Some((shortest, longest)) = self.poll_interval {
            subscription = subscription.with_poll_interval(shortest, longest);
        }
        subscription
    }
}

/// Poll interval of a per-destination queue that only an earlier route, or another process, fills.
const LEFT_POLL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Its concurrency: it is empty most of the time, and each slot is a task.
const LEFT_CONCURRENCY: usize = 100;

/// The per-destination queue: messages of `queue` that this destination has not accepted yet.
fn destination_queue(queue: &str, destination: &str) -> Result<QueueName, Invalid> {
    QueueName::new(format!("{queue}>{destination}"))
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Route").field("queue", &self.queue).field("to", &self.targets).finish_non_exhaustive()
    }
}

impl fmt::Debug for RouteTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteTarget")
            .field("destination", &self.destination)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
