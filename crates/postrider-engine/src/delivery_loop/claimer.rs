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
        window.on_freed(window.size - free);
        let bytes_in_flight = self.leases.bytes_in_flight(&self.subscription);
        let budget = self.subscription.max_bytes_in_flight.saturating_sub(bytes_in_flight);
        if budget == 0 {
            stop.run_until_cancelled(self.wakeup.wait(Duration::from_millis(10))).await;
            return None;
        }
        let free = free.min(window.payloads.that_fit(budget)).min(MAX_CLAIM);
        let wanted = match &self.subscription.gate {
            None => free,
            Some(gate) => {
                // Before the permit is asked for, so that no change after it is missed.
                let changed = gate.changed();
                match gate.acquire() {
                    ClaimPermit::Unlimited => free,
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
        let bytes = claimed.iter().map(|claimed| claimed.message.payload().len()).sum();
        let (count, is_full) = (claimed.len(), claimed.len() >= limit);
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
        window.on_filled(is_full, count);
        window.payloads.on_claimed(count, bytes);
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
/// Without a fixed prefetch it follows the speed of the deliveries: half of what is in flight after a claim should last for some
/// tens of milliseconds, so that claims are large when handlers are fast, and nothing is hoarded when they are slow. Only messages
/// that were delivered count: the capacity that a larger window adds is free at once, and says nothing about the speed.
#[derive(Debug)]
struct PrefetchWindow {
    size: usize,
    min: usize,
    max: usize,
    in_flight: usize,
    /// The last full claim: when it was, and the number of messages in flight after it.
    filled: Option<(Instant, usize)>,
    payloads: PayloadSize,
}

const GROW_BELOW: Duration = Duration::from_millis(50);
const SHRINK_ABOVE: Duration = Duration::from_millis(500);

impl PrefetchWindow {
    fn new(subscription: &Subscription) -> Self {
        let min = subscription.concurrency.saturating_mul(2);
        match subscription.prefetch {
            Some(size) => Self::between(size, size),
            None => Self::between(min, min.max(2 * MAX_CLAIM)),
        }
    }

    fn between(min: usize, max: usize) -> Self {
        Self { size: min, min, max, in_flight: 0, filled: None, payloads: PayloadSize::default() }
    }

    /// A claim returned this many messages: as many as requested, or fewer.
    fn on_filled(&mut self, is_full: bool, claimed: usize) {
        self.in_flight += claimed;
        self.filled = is_full.then(|| (Instant::now(), self.in_flight));
    }

    /// At least half of the window is free, with this many messages in flight.
    fn on_freed(&mut self, in_flight: usize) {
        self.in_flight = in_flight;
        let is_used = |(_, filled): &(Instant, usize)| in_flight * 2 <= *filled;
        let Some((filled_at, _)) = self.filled.filter(is_used) else { return };
        self.filled = None;
        let lasted = filled_at.elapsed();
        if lasted < GROW_BELOW {
            self.size = self.size.saturating_mul(2).min(self.max);
        } else if lasted > SHRINK_ABOVE {
            self.size = (self.size / 2).max(self.min);
        }
    }
}

/// The expected payload size of the messages that are claimed next: the mean of the last claim, or a part of larger means before it.
/// Until the first claim it is unknown, and that claim is small.
#[derive(Debug, Default)]
struct PayloadSize(Option<usize>);

/// Most queues have smaller payloads, and their second claim is as large as they can use.
const FIRST_PAYLOAD: usize = 1 << 20;
/// The default window of a worker.
const FIRST_CLAIM: usize = 20;

impl PayloadSize {
    /// The number of messages that are expected to fit into this many bytes: at least one.
    fn that_fit(&self, budget: usize) -> usize {
        match self.0 {
            None => (budget / FIRST_PAYLOAD).clamp(1, FIRST_CLAIM),
            Some(size) => (budget / size.max(1)).max(1),
        }
    }

    fn on_claimed(&mut self, count: usize, bytes: usize) {
        let mean = bytes.div_ceil(count.max(1));
        self.0 = Some(mean.max(self.0.unwrap_or(0) / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims as the claimer does, while `per_second` messages are delivered, and returns the largest number of messages in flight.
    async fn most_in_flight(window: &mut PrefetchWindow, per_second: u32, length: Duration) -> usize {
        let step = Duration::from_millis(1);
        let (began, mut delivered, mut claimed, mut most) = (Instant::now(), 0, 0, 0);
        while began.elapsed() < length {
            loop {
                let in_flight = claimed - delivered;
                let free = window.size.saturating_sub(in_flight);
                if free * 2 < window.size {
                    break;
                }
                window.on_freed(in_flight);
                let limit = free.min(MAX_CLAIM);
                claimed += limit;
                window.on_filled(true, limit);
                most = most.max(claimed - delivered);
            }
            tokio::time::advance(step).await;
            let due = (began.elapsed().as_secs_f64() * f64::from(per_second)) as usize;
            delivered = due.min(claimed);
        }
        most
    }

    #[test]
    fn claims_follow_the_payload_size() {
        const MIB: usize = 1 << 20;
        let mut payloads = PayloadSize::default();
        assert_eq!(
            (payloads.that_fit(64 * MIB), payloads.that_fit(8 * MIB), payloads.that_fit(1)),
            (20, 8, 1)
        );
        payloads.on_claimed(20, 20 * 4 * MIB);
        assert_eq!((payloads.that_fit(64 * MIB), payloads.that_fit(MIB)), (16, 1));
        payloads.on_claimed(1_000, 100_000);
        assert_eq!(payloads.that_fit(64 * MIB), 32, "large payloads are remembered for a while");
        (0..20).for_each(|_| payloads.on_claimed(1_000, 100_000));
        assert!(payloads.that_fit(64 * MIB) > MAX_CLAIM);
        payloads.on_claimed(1, 0);
        assert!(payloads.that_fit(64 * MIB) > MAX_CLAIM, "an empty payload");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_deliveries_do_not_grow_the_window() {
        // Ten at a time, of 50 ms each.
        for per_second in [1, 20, 200] {
            let mut window = PrefetchWindow::between(20, 2 * MAX_CLAIM);
            let most = most_in_flight(&mut window, per_second, Duration::from_secs(30)).await;
            assert!(most <= 40, "{most} in flight at {per_second} messages a second");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn window_is_limited_to_a_fraction_of_a_second_of_deliveries() {
        for per_second in [500, 2_000, 10_000] {
            let mut window = PrefetchWindow::between(20, 2 * MAX_CLAIM);
            let most = most_in_flight(&mut window, per_second, Duration::from_secs(5)).await;
            assert!(most * 4 <= per_second as usize, "{most} in flight at {per_second} messages a second");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn fast_deliveries_grow_the_window_to_its_limit() {
        let mut window = PrefetchWindow::between(20, 2 * MAX_CLAIM);
        most_in_flight(&mut window, 200_000, Duration::from_secs(1)).await;
        assert_eq!(window.size, 2 * MAX_CLAIM);
    }

    #[tokio::test(start_paused = true)]
    async fn deliveries_that_become_slow_shrink_the_window() {
        let mut window = PrefetchWindow::between(20, 2 * MAX_CLAIM);
        most_in_flight(&mut window, 200_000, Duration::from_secs(1)).await;
        most_in_flight(&mut window, 100, Duration::from_secs(60)).await;
        assert!(window.size <= 100, "{window:?}");
    }
}
