//! Fetchers: one per queue.

use super::{
    Passage, Subscription, Together,
    alarm::Alarm,
    delivery::Unit,
    desk::Desk,
    hall::Hall,
    idle::{Idle, Rest},
    leases::Leases,
    run::untouched,
    running::Draining,
    subscription::LARGEST_CLAIM,
    trouble::{Backoff, Trouble},
};
use postrider_core::{ClaimRequest, Claimed, Error, Store};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

pub(super) struct Fetcher {
    pub(super) store: Arc<dyn Store>,
    pub(super) subscription: Arc<Subscription>,
    pub(super) line: usize,
    pub(super) hall: Arc<Hall>,
    pub(super) desk: Arc<Desk>,
    pub(super) leases: Arc<Leases>,
    pub(super) trouble: Arc<Trouble>,
    pub(super) alarm: Arc<Alarm>,
    pub(super) hears: Arc<AtomicBool>,
    pub(super) idle: Idle,
    pub(super) draining: Option<Arc<Draining>>,
    pub(super) stop: CancellationToken,
}

impl Fetcher {
    pub(super) async fn run(mut self) {
        let stop = self.stop.clone();
        let mut room = Room::new(&self.subscription);
        let mut backoff = Self::backoff();
        while !stop.is_cancelled() {
            if let Err(error) = self.prepare().await {
                self.failed(error, &mut backoff).await;
                continue;
            }
            let Some(limit) = self.limit(&mut room).await else { continue };
            // Taken before the claim: what happens after this is not in its answer.
            let seen = self.draining.as_ref().map(|draining| draining.seen());
            let sent_at = Instant::now();
            let request = ClaimRequest::new(self.subscription.queue.clone(), limit)
                .with_lease_for(self.subscription.lease_for)
                .with_tenant_weights(self.subscription.tenant_weights.clone());
            // Never cut short: what the store has claimed must arrive here.
            let rest = match self.store.claim(&request).await {
                Ok(claimed) => {
                    self.trouble.is_over();
                    backoff = Self::backoff();
                    self.put_back(limit - claimed.len().min(limit), claimed.is_empty());
                    if claimed.is_empty() {
                        self.found_nothing(seen).await
                    } else {
                        self.found(claimed, limit, sent_at, &mut room).await
                    }
                }
                Err(error) => {
                    self.put_back(limit, true);
                    Err(error)
                }
            };
            let wait = match rest {
                Ok(Rest::LookAgain) => continue,
                Ok(Rest::Wait(wait)) => wait,
                Err(error) => {
                    self.failed(error, &mut backoff).await;
                    continue;
                }
            };
            stop.run_until_cancelled(self.alarm.wait(wait)).await;
        }
        if let Err(error) = self.idle.rise().await {
            self.trouble.happened("rising", &error);
        }
    }

    async fn prepare(&self) -> Result<(), Error> {
        match &self.subscription.gate {
            Some(gate) => gate.prepare(&*self.store).await,
            None => Ok(()),
        }
    }

    /// The store does not answer as it should: it is left alone for a while.
    async fn failed(&self, error: Error, backoff: &mut Backoff) {
        self.trouble.happened("claiming", &error);
        if let Some(draining) = &self.draining {
            draining.fail(error);
        }
        self.stop.run_until_cancelled(sleep(backoff.pause())).await;
    }

    fn backoff() -> Backoff {
        Backoff::new(Duration::from_millis(100), Duration::from_secs(5))
    }

    /// How many messages to claim now. `None` after having waited for room, or for the pace.
    async fn limit(&self, room: &mut Room) -> Option<usize> {
        let stop = &self.stop;
        let free = if self.desk.is_full() { None } else { self.hall.free(self.line, room.size) };
        let Some(free) = free else {
            // A full desk rings nobody.
            stop.run_until_cancelled(self.alarm.wait(Duration::from_millis(10))).await;
            return None;
        };
        room.was_freed();
        let wanted = match &self.subscription.gate {
            None => free.min(LARGEST_CLAIM),
            Some(gate) => {
                // Before the look: what changes after it is heard.
                let changed = gate.changed();
                match gate.look() {
                    Passage::Open => free.min(LARGEST_CLAIM),
                    Passage::One => 1,
                    Passage::Shut(wait) => {
                        stop.run_until_cancelled(self.shut_out(wait, changed)).await;
                        return None;
                    }
                }
            }
        };
        match self.subscription.pace.as_ref().map(|pace| pace.take(wanted, Instant::now())) {
            None => Some(wanted),
            Some(Ok(limit)) => Some(limit),
            Some(Err(wait)) => {
                self.put_back(0, true);
                stop.run_until_cancelled(sleep(wait)).await;
                None
            }
        }
    }

    /// Waits at a gate that is shut.
    async fn shut_out(&self, wait: Duration, changed: impl Future<Output = ()>) {
        let Some(draining) = &self.draining else {
            tokio::select! { () = sleep(wait) => {}, () = changed => {} }
            return;
        };
        // Whoever asked for what can be done now does not wait for what cannot, and says so again after whatever others have done.
        draining.found_nothing(self.line, draining.seen(), self.leases.in_hand());
        tokio::select! { () = self.alarm.wait(wait) => {}, () = changed => {} }
    }

    /// What was let through and not used.
    fn put_back(&self, unused: usize, is_empty: bool) {
        if let Some(pace) = &self.subscription.pace {
            pace.put_back(unused);
        }
        if let Some(gate) = self.subscription.gate.as_ref().filter(|_| is_empty) {
            gate.put_back();
        }
    }

    async fn found(
        &mut self,
        claimed: Vec<Claimed>,
        limit: usize,
        sent_at: Instant,
        room: &mut Room,
    ) -> Result<Rest, Error> {
        let is_full = claimed.len() >= limit;
        let oldest = claimed.iter().map(|claimed| claimed.due_at).min();
        self.subscription.meter.fetched(claimed.len(), oldest);
        // Each failed attempt and this one are a delivery; what is more was begun by somebody and never settled.
        let is_reclaimed = |claimed: &&Claimed| claimed.deliveries > claimed.attempts.saturating_add(1);
        self.subscription.meter.reclaimed(claimed.iter().filter(is_reclaimed).count());
        let subscription = &self.subscription;
        let many = subscription.deliver.together().map_or(1, Together::most);
        let deliveries = self.leases.enter(subscription, claimed, sent_at);
        let units = Unit::group(deliveries, many.min(subscription.concurrency));
        if let Some(draining) = &self.draining {
            draining.stir();
        }
        if let Err(units) = self.hall.put(self.line, units) {
            let deliveries = units.iter().flat_map(Unit::deliveries);
            self.desk.put(deliveries.map(untouched), true);
        }
        room.was_filled(is_full);
        self.idle.rise().await?;
        Ok(Rest::LookAgain)
    }

    async fn found_nothing(&mut self, seen: Option<u64>) -> Result<Rest, Error> {
        self.subscription.meter.fetched(0, None);
        match (&self.draining, seen) {
            (Some(draining), Some(seen)) => {
                draining.found_nothing(self.line, seen, self.leases.in_hand());
                // Rung when something was settled.
                Ok(Rest::Wait(self.subscription.longest_wait))
            }
            _ => self.idle.rest(self.hears.load(SeqCst)).await,
        }
    }
}

/// How many messages of a queue are in hand at once.
///
/// Unless the user says so, it follows the pace of the deliveries: what is claimed should last for some tens of
/// milliseconds, so that claims are large when handlers are fast, and nothing is hoarded when they are slow.
#[derive(Debug)]
struct Room {
    size: usize,
    least: usize,
    most: usize,
    filled_at: Option<Instant>,
}

const TOO_SHORT: Duration = Duration::from_millis(50);
const TOO_LONG: Duration = Duration::from_millis(500);

impl Room {
    fn new(subscription: &Subscription) -> Self {
        let least = subscription.concurrency.saturating_mul(2);
        match subscription.prefetch {
            Some(size) => Self { size, least: size, most: size, filled_at: None },
            None => Self { size: least, least, most: least.max(2 * LARGEST_CLAIM), filled_at: None },
        }
    }

    /// A claim brought as much as was asked for, or not.
    fn was_filled(&mut self, is_full: bool) {
        self.filled_at = is_full.then(Instant::now);
    }

    /// At least half of it is free again.
    fn was_freed(&mut self) {
        let Some(filled_at) = self.filled_at.take() else { return };
        let lasted = filled_at.elapsed();
        if lasted < TOO_SHORT {
            self.size = self.size.saturating_mul(2).min(self.most);
        } else if lasted > TOO_LONG {
            self.size = (self.size / 2).max(self.least);
        }
    }
}
