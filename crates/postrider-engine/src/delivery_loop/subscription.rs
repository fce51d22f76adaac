//! The subscription of the delivery loop to one queue.

use super::{CircuitGate, Deliver, metrics::QueueMetrics, rate_limiter::RateLimiter};
use crate::runner::Report;
use postrider_core::{Invalid, QueueName, TenantWeights, store::check_lease};
use std::{sync::Arc, time::Duration};

/// The maximum number of messages per claim.
pub(super) const MAX_CLAIM: usize = 1_000;

/// The default limit of the payload bytes of a queue in flight, per process.
pub(crate) const MAX_BYTES_IN_FLIGHT: usize = 64 << 20;

/// One queue, and how its messages are delivered.
#[derive(Debug)]
pub struct Subscription {
    pub(super) queue: QueueName,
    pub(super) deliver: Arc<dyn Deliver>,
    pub(super) concurrency: usize,
    pub(super) weight: u32,
    pub(super) tenant_weights: TenantWeights,
    pub(super) prefetch: Option<usize>,
    pub(super) max_bytes_in_flight: usize,
    pub(super) lease_for: Duration,
    pub(super) max_lease: Duration,
    pub(super) rate_limiter: Option<RateLimiter>,
    pub(super) gate: Option<Arc<dyn CircuitGate>>,
    pub(super) poll_min: Duration,
    pub(super) poll_max: Duration,
    pub(super) has_notifications: bool,
    pub(super) metrics: QueueMetrics,
}

impl Subscription {
    /// Delivers the messages of `queue`.
    pub fn new(queue: QueueName, deliver: Arc<dyn Deliver>) -> Self {
        Self {
            metrics: QueueMetrics::new(&queue),
            queue,
            deliver,
            concurrency: 10,
            weight: 1,
            tenant_weights: TenantWeights::default(),
            prefetch: None,
            max_bytes_in_flight: MAX_BYTES_IN_FLIGHT,
            lease_for: Duration::from_secs(60),
            max_lease: Duration::from_secs(15 * 60),
            rate_limiter: None,
            gate: None,
            poll_min: Duration::from_millis(10),
            poll_max: Duration::from_secs(1),
            has_notifications: true,
        }
    }

    /// Concurrency: the maximum number of deliveries at once; default 10.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Share among the queues of one loop under load; default 1.
    #[must_use]
    pub fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// The shares of tenants, on a queue that is fair by tenant.
    #[must_use]
    pub fn with_tenant_weights(mut self, tenant_weights: TenantWeights) -> Self {
        self.tenant_weights = tenant_weights;
        self
    }

    /// Prefetch: the maximum number of messages in flight, running ones included. Default: adapts to the speed of the
    /// deliveries.
    #[must_use]
    pub fn with_prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// Byte budget: claims no more while the payloads of the messages in flight add up to this; default 64 MiB.
    #[must_use]
    pub fn with_max_bytes_in_flight(mut self, max_bytes_in_flight: usize) -> Self {
        self.max_bytes_in_flight = max_bytes_in_flight;
        self
    }

    /// Lease duration; default one minute.
    #[must_use]
    pub fn with_lease_for(mut self, lease_for: Duration) -> Self {
        self.lease_for = lease_for;
        self
    }

    /// Maximum total lease time: a lease is renewed until it was held for this long; default 15 minutes.
    #[must_use]
    pub fn with_max_lease(mut self, max_lease: Duration) -> Self {
        self.max_lease = max_lease;
        self
    }

    /// Rate limit: claims at most `messages` per `per`, per process.
    #[must_use]
    pub fn with_rate_limit(mut self, messages: u32, per: Duration) -> Self {
        self.rate_limiter = Some(RateLimiter::new(messages, per));
        self
    }

    /// Claims only what this gate permits.
    #[must_use]
    pub fn with_gate(mut self, gate: Arc<dyn CircuitGate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Poll interval while the queue is empty: grows from `shortest` to `longest`.
    #[must_use]
    pub fn with_poll_interval(mut self, shortest: Duration, longest: Duration) -> Self {
        (self.poll_min, self.poll_max) = (shortest, longest);
        self
    }

    /// Polls only: for queues that are empty most of the time, and whose messages may wait.
    #[must_use]
    pub fn without_notifications(mut self) -> Self {
        self.has_notifications = false;
        self
    }

    /// The counts of its messages so far.
    pub(super) fn report(&self) -> Report {
        self.metrics.report()
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// Names the first invalid setting and the valid values.
    pub fn check(&self) -> Result<(), Invalid> {
        let rule = |field: &'static str, rule: String| Err(Invalid::rule(field, rule));
        let queue = &self.queue;
        if self.concurrency == 0 {
            return rule(
                "concurrency",
                format!("is 0 for queue {queue}; nothing would ever run: set at least 1"),
            );
        }
        if self.max_bytes_in_flight == 0 {
            return rule(
                "max_bytes_in_flight",
                format!("is 0 for queue {queue}; nothing would ever be claimed: set at least 1"),
            );
        }
        if self.weight == 0 {
            return rule(
                "weight",
                format!("is 0 for queue {queue}; it would never be served: set at least 1"),
            );
        }
        if let Some(prefetch) = self.prefetch.filter(|prefetch| *prefetch < self.concurrency) {
            return rule(
                "prefetch",
                format!(
                    "is {prefetch} for queue {queue}, less than its concurrency of {}: raise prefetch",
                    self.concurrency
                ),
            );
        }
        if let Some(rate_limiter) = &self.rate_limiter {
            rate_limiter.check(&format!("queue {queue}"))?;
        }
        if self.poll_min.is_zero() || self.poll_min > self.poll_max {
            let (shortest, longest) = (self.poll_min, self.poll_max);
            return rule(
                "poll_interval",
                format!(
                    "is {shortest:?} to {longest:?} for queue {queue}: the shortest must be above zero and at most the longest"
                ),
            );
        }
        self.tenant_weights.check()?;
        check_lease(self.lease_for)
    }
}
