//! Claimers: one per queue, each claims messages and hands them to the dispatcher.

use super::{
    BatchDeliver, ClaimPermit, Subscription,
    backoff::Backoff,
    delivery::WorkUnit,
    dispatcher::Dispatcher,
    executor::unstarted,
    idle::{IdleAction, IdleState},
    idle_detector::{IdleDetector, RunScope},
    leases::LeaseRegistry,
    settle_buffer::SettleBuffer,
    store_outage::StoreOutage,
    subscription::MAX_CLAIM,
    wakeup::Wakeup,
};
use postrider_core::{ClaimRequest, ClaimedMessage, Error, Store};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub(super) struct Claimer {
    pub(super) store: Arc<dyn Store>,
    pub(super) subscription: Arc<Subscription>,
    pub(super) queue_index: usize,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) settle_buffer: Arc<SettleBuffer>,
    pub(super) leases: Arc<LeaseRegistry>,
    pub(super) store_outage: Arc<StoreOutage>,
    pub(super) wakeup: Arc<Wakeup>,
    pub(super) is_listening: Arc<AtomicBool>,
    pub(super) idle: IdleState,
    pub(super) idle_detector: Option<Arc<IdleDetector>>,
    pub(super) stop: CancellationToken,
}

impl Claimer {
    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        let mut window = PrefetchWindow::new(&self.subscription);
        let mut backoff = Self::backoff();
        let mut has_claimed = false;
        while !stop.is_cancelled() {
            if has_claimed && self.is_one_batch() {
                // Nothing more to claim: this queue counts as empty, again after every change.
                self.note_empty();
                stop.run_until_cancelled(self.wakeup.wait(self.subscription.poll_max)).await;
                continue;
            }
            if let Err(error) = self.refresh_gate().await {
                self.back_off(error, &mut backoff).await;
                continue;
            }
            let Some(limit) = self.claim_limit(&mut window).await else { continue };
            // Read before the claim: later changes are not in its result.
            let version = self.idle_detector.as_ref().map(|idle_detector| idle_detector.version());
            let sent_at = Instant::now();
            let request = ClaimRequest::new(self.subscription.queue.clone(), limit)
                .with_lease_for(self.subscription.lease_for)
                .with_tenant_weights(self.subscription.tenant_weights.clone());
            // Never cancelled: messages that the store has claimed must arrive here.
            let action = match self.store.claim(&request).await {
                Ok(claimed) => {
                    has_claimed = true;
                    self.store_outage.resolved();
                    backoff = Self::backoff();
                    self.refund(limit - claimed.len().min(limit), claimed.is_empty());
                    if claimed.is_empty() {
                        self.on_empty(version).await
                    } else {
                        self.on_claimed(claimed, limit, sent_at, &mut window).await
                    }
                }
                Err(error) => {
                    self.refund(limit, true);
                    Err(error)
                }
            };
            let wait = match action {
                Ok(IdleAction::ClaimAgain) => continue,
                Ok(IdleAction::Wait(wait)) => wait,
                Err(error) => {
                    self.back_off(error, &mut backoff).await;
                    continue;
                }
            };
            stop.run_until_cancelled(self.wakeup.wait(wait)).await;
        }
        if let Err(error) = self.idle.deregister_idle().await {
            self.store_outage.report("deregister an idle worker", &error);
        }
    }

    async fn refresh_gate(&self) -> Result<(), Error> {
        match &self.subscription.gate {
            Some(gate) => gate.refresh(&*self.store).await,
            None => Ok(()),
        }
    }

    fn is_one_batch(&self) -> bool {
        self.idle_detector.as_ref().is_some_and(|detector| detector.scope() == RunScope::OneBatch)
    }

    /// This queue has nothing to claim at the present version.
    fn note_empty(&self) {
        if let Some(idle_detector) = &self.idle_detector {
            idle_detector.note_empty(self.queue_index, idle_detector.version(), self.leases.in_flight());
        }
    }

    /// The store failed: waits for the backoff before the next claim.
    async fn back_off(&self, error: Error, backoff: &mut Backoff) {
        self.store_outage.report("claim messages", &error);
        if let Some(idle_detector) = &self.idle_detector {
            idle_detector.fail(error);
        }
        self.stop.run_until_cancelled(sleep(backoff.next_delay())).await;
    }

    fn backoff() -> Backoff {
        Backoff::new(Duration::from_millis(100), Duration::from_secs(5))
    }

    /// The number of messages to claim now. `None` after waiting for free capacity, the circuit or the rate limit.
    async fn claim_limit(&self, window: &mut PrefetchWindow) -> Option<usize> {
        let stop = &self.stop;
        let free = if self.settle_buffer.is_full() {
            None
        } else {
            self.dispatcher.free_capacity(self.queue_index, window.size)
        };
        let Some(free) = free else {
            // A full settle buffer wakes nobody.
            stop.run_until_cancelled(self.wakeup.wait(Duration::from_millis(10))).await;
            return None;
        };
        window.on_freed();
        let wanted = match &self.subscription.gate {
            None => free.min(MAX_CLAIM),
            Some(gate) => {
                // Before the permit is asked for, so that no change after it is missed.
                let changed = gate.changed();
                match gate.acquire() {
                    ClaimPermit::Unlimited => free.min(MAX_CLAIM),
                    ClaimPermit::Probe => 1,
                    ClaimPermit::Denied(wait) => {
                        stop.run_until_cancelled(self.wait_for_gate(wait, changed)).await;
                        return None;
                    }
                }
            }
        };
        match self
            .subscription
            .rate_limiter
            .as_ref()
            .map(|rate_limiter| rate_limiter.acquire(wanted, Instant::now()))
        {
            None => Some(wanted),
            Some(Ok(limit)) => Some(limit),
            Some(Err(wait)) => {
                self.refund(0, true);
                if self.is_one_batch() {
                    // `run_batch` does not wait for the rate limit either.
                    self.note_empty();
                    stop.run_until_cancelled(self.wakeup.wait(wait)).await;
                } else {
                    stop.run_until_cancelled(sleep(wait)).await;
                }
                None
            }
        }
    }

    /// Waits while the circuit gate denies claims.
    async fn wait_for_gate(&self, wait: Duration, changed: impl Future<Output = ()>) {
        if self.idle_detector.is_none() {
            tokio::select! { () = sleep(wait) => {}, () = changed => {} }
            return;
        }
        // A run that ends by itself does not wait for an open circuit: its queue counts as empty, again after every
        // change.
        self.note_empty();
        tokio::select! { () = self.wakeup.wait(wait) => {}, () = changed => {} }
    }

    /// Returns what was permitted and not used.
    fn refund(&self, unused: usize, is_empty: bool) {
        if let Some(rate_limiter) = &self.subscription.rate_limiter {
            rate_limiter.refund(unused);
        }
        if let Some(gate) = self.subscription.gate.as_ref().filter(|_| is_empty) {
            gate.release();
        }
    }

    async fn on_claimed(
        &mut self,
        claimed: Vec<ClaimedMessage>,
        limit: usize,
        sent_at: Instant,
        window: &mut PrefetchWindow,
    ) -> Result<IdleAction, Error> {
        let is_full = claimed.len() >= limit;
        let oldest = claimed.iter().map(|claimed| claimed.due_at).min();
        self.subscription.metrics.record_claimed(claimed.len(), oldest);
        // Each failed attempt and this claim count as one delivery; every further one was started by a worker whose
        // lease expired.
        let is_reclaimed =
            |claimed: &&ClaimedMessage| claimed.deliveries > claimed.attempts.saturating_add(1);
        self.subscription.metrics.record_reclaimed(claimed.iter().filter(is_reclaimed).count());
        let subscription = &self.subscription;
        let max_batch = subscription.deliver.as_batch().map_or(1, BatchDeliver::max_batch);
        let deliveries = self.leases.register(subscription, claimed, sent_at);
        let units = WorkUnit::group(deliveries, max_batch.min(subscription.concurrency));
        if let Some(idle_detector) = &self.idle_detector {
            idle_detector.note_change();
        }
        if let Err(units) = self.dispatcher.enqueue(self.queue_index, units) {
            let deliveries = units.iter().flat_map(WorkUnit::deliveries);
            self.settle_buffer.push(deliveries.map(unstarted), true);
        }
        window.on_filled(is_full);
        self.idle.deregister_idle().await?;
        Ok(IdleAction::ClaimAgain)
    }

    async fn on_empty(&mut self, version: Option<u64>) -> Result<IdleAction, Error> {
        self.subscription.metrics.record_claimed(0, None);
        match (&self.idle_detector, version) {
            (Some(idle_detector), Some(version)) => {
                idle_detector.note_empty(self.queue_index, version, self.leases.in_flight());
                // Woken when a batch was settled.
                Ok(IdleAction::Wait(self.subscription.poll_max))
            }
            _ => self.idle.next_action(self.is_listening.load(SeqCst)).await,
        }
    }
}

/// The maximum number of messages of a queue in flight.
///
/// Without a fixed prefetch it follows the speed of the deliveries: one claim should last for some tens of milliseconds, so
/// that claims are large when handlers are fast, and nothing is hoarded when they are slow.
#[derive(Debug)]
struct PrefetchWindow {
    size: usize,
    min: usize,
    max: usize,
    filled_at: Option<Instant>,
}

const GROW_BELOW: Duration = Duration::from_millis(50);
const SHRINK_ABOVE: Duration = Duration::from_millis(500);

impl PrefetchWindow {
    fn new(subscription: &Subscription) -> Self {
        let min = subscription.concurrency.saturating_mul(2);
        match subscription.prefetch {
            Some(size) => Self { size, min: size, max: size, filled_at: None },
            None => Self { size: min, min, max: min.max(2 * MAX_CLAIM), filled_at: None },
        }
    }

    /// A claim returned as many messages as requested, or fewer.
    fn on_filled(&mut self, is_full: bool) {
        self.filled_at = is_full.then(Instant::now);
    }

    /// At least half of the window is free again.
    fn on_freed(&mut self) {
        let Some(filled_at) = self.filled_at.take() else { return };
        let lasted = filled_at.elapsed();
        if lasted < GROW_BELOW {
            self.size = self.size.saturating_mul(2).min(self.max);
        } else if lasted > SHRINK_ABOVE {
            self.size = (self.size / 2).max(self.min);
        }
    }
}
