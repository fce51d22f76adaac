//! What a carrier is to do with one queue.

use super::{Deliver, Gate, meter::Meter, pace::Pace, tally::Tally};
use postrider_core::{Invalid, QueueName, TenantWeights, store::check_lease};
use std::{sync::Arc, time::Duration};

/// The most messages that one claim asks for.
pub(super) const LARGEST_CLAIM: usize = 1_000;

/// One queue, and how its messages are carried.
#[derive(Debug)]
pub struct Subscription {
    pub(super) queue: QueueName,
    pub(super) deliver: Arc<dyn Deliver>,
    pub(super) concurrency: usize,
    pub(super) weight: u32,
    pub(super) tenant_weights: TenantWeights,
    pub(super) prefetch: Option<usize>,
    pub(super) lease_for: Duration,
    pub(super) hold_for: Duration,
    pub(super) pace: Option<Pace>,
    pub(super) gate: Option<Arc<dyn Gate>>,
    pub(super) shortest_wait: Duration,
    pub(super) longest_wait: Duration,
    pub(super) meter: Meter,
}

impl Subscription {
    /// Delivers what waits in `queue`.
    pub fn new(queue: QueueName, deliver: Arc<dyn Deliver>) -> Self {
        Self {
            meter: Meter::new(&queue),
            queue,
            deliver,
            concurrency: 10,
            weight: 1,
            tenant_weights: TenantWeights::default(),
            prefetch: None,
            lease_for: Duration::from_secs(60),
            hold_for: Duration::from_secs(15 * 60),
            pace: None,
            gate: None,
            shortest_wait: Duration::from_millis(10),
            longest_wait: Duration::from_secs(1),
        }
    }

    /// Runs up to so many deliveries at once.
    #[must_use]
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.concurrency = concurrency;
        self
    }

    /// Its share among the queues of one carrier when there is more to do than can be run at once.
    #[must_use]
    pub fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// The shares of its tenants, where they take turns.
    #[must_use]
    pub fn with_tenant_weights(mut self, tenant_weights: TenantWeights) -> Self {
        self.tenant_weights = tenant_weights;
        self
    }

    /// Holds up to so many messages at once, those being delivered included. Otherwise that follows how fast they are delivered.
    #[must_use]
    pub fn with_prefetch(mut self, prefetch: usize) -> Self {
        self.prefetch = Some(prefetch);
        self
    }

    /// Leases messages for so long at a time.
    #[must_use]
    pub fn with_lease_for(mut self, lease_for: Duration) -> Self {
        self.lease_for = lease_for;
        self
    }

    /// Renews a lease until it was held for so long in all.
    #[must_use]
    pub fn with_hold_for(mut self, hold_for: Duration) -> Self {
        self.hold_for = hold_for;
        self
    }

    /// Claims at most so many messages in so long. Each process counts for itself.
    #[must_use]
    pub fn with_rate(mut self, messages: u32, per: Duration) -> Self {
        self.pace = Some(Pace::new(messages, per));
        self
    }

    /// Claims only when this gate is open.
    #[must_use]
    pub fn with_gate(mut self, gate: Arc<dyn Gate>) -> Self {
        self.gate = Some(gate);
        self
    }

    /// Looks again after at least and at most so long while there is nothing to do.
    #[must_use]
    pub fn with_waits(mut self, shortest: Duration, longest: Duration) -> Self {
        (self.shortest_wait, self.longest_wait) = (shortest, longest);
        self
    }

    /// What became of its messages so far.
    pub(super) fn tally(&self) -> Tally {
        self.meter.tally()
    }

    /// Whether all of this can be done.
    ///
    /// # Errors
    /// Names the first setting that cannot, and says what can.
    pub fn check(&self) -> Result<(), Invalid> {
        let rule = |field: &'static str, rule: String| Err(Invalid::rule(field, rule));
        let queue = &self.queue;
        if self.concurrency == 0 {
            return rule(
                "concurrency",
                format!("is 0 for queue {queue}; nothing would ever run: give at least 1"),
            );
        }
        if self.weight == 0 {
            return rule(
                "weight",
                format!("is 0 for queue {queue}; it would never have a turn: give at least 1"),
            );
        }
        if let Some(prefetch) = self.prefetch.filter(|prefetch| *prefetch < self.concurrency) {
            return rule(
                "prefetch",
                format!("is {prefetch} for queue {queue}, less than its concurrency of {}", self.concurrency),
            );
        }
        if let Some(pace) = &self.pace {
            pace.check(&format!("queue {queue}"))?;
        }
        if self.shortest_wait.is_zero() || self.shortest_wait > self.longest_wait {
            let (shortest, longest) = (self.shortest_wait, self.longest_wait);
            return rule(
                "waits",
                format!(
                    "are {shortest:?} to {longest:?} for queue {queue}; the shortest must be more than nothing and at most the longest"
                ),
            );
        }
        self.tenant_weights.check()?;
        check_lease(self.lease_for)
    }
}
