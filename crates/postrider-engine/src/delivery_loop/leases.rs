//! The leases of all messages in flight, and their renewal.
//!
//! A lease is renewed when a third of it has passed, for messages that wait in the dispatcher as for those that run. A lease
//! that the store reports as lost is lost. While the store does not answer, the process goes by its own clock, counted from
//! before the claim was sent: once a lease may have expired, the delivery is cancelled, and the store decides about a
//! settlement that still arrives.

use super::{Delivery, Subscription, metrics::Phase, store_outage::StoreOutage};
use futures_util::future::join_all;
use postrider_core::{Error, Lease, LeaseToken, MessageId, Store};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(super) struct LeaseRegistry(Mutex<LeaseTable>);

#[derive(Debug, Default)]
struct LeaseTable {
    last: u64,
    /// Few entries: a table with a strong hash would cost more per lookup.
    batches: BTreeMap<u64, ClaimBatch>,
}

/// The messages of one claim.
#[derive(Debug)]
struct ClaimBatch {
    subscription: Arc<Subscription>,
    /// Those that have not ended. A message that has ended is freed, though others of its claim may run for long.
    deliveries: Vec<Option<Arc<Delivery>>>,
    /// Number of them that are still in flight.
    in_flight: usize,
    /// The payload bytes of those.
    bytes_in_flight: usize,
    claimed_at: Instant,
    renewed_at: Instant,
}

impl LeaseRegistry {
    /// Registers messages of a claim that was sent at `claimed_at`.
    pub(super) fn register(
        &self,
        subscription: &Arc<Subscription>,
        claimed: Vec<postrider_core::ClaimedMessage>,
        claimed_at: Instant,
    ) -> Vec<Arc<Delivery>> {
        let mut table = self.lock();
        table.last += 1;
        let number = table.last;
        let deliveries: Vec<_> = claimed
            .into_iter()
            .enumerate()
            .map(|(index, claimed)| {
                Arc::new(Delivery::new(claimed, Arc::clone(subscription), claimed_at, number, index))
            })
            .collect();
        let batch = ClaimBatch {
            subscription: Arc::clone(subscription),
            deliveries: deliveries.iter().cloned().map(Some).collect(),
            in_flight: deliveries.len(),
            bytes_in_flight: deliveries.iter().map(|delivery| delivery.payload_bytes()).sum(),
            claimed_at,
            renewed_at: claimed_at,
        };
        table.batches.insert(number, batch);
        deliveries
    }

    /// Ends deliveries, and returns for each whether this call did: a delivery ends once.
    pub(super) fn end<'d>(&self, deliveries: impl Iterator<Item = &'d Arc<Delivery>>) -> Vec<bool> {
        let mut table = self.lock();
        deliveries.map(|delivery| table.end(delivery)).collect()
    }

    /// The number of messages in flight: waiting, running or unsettled.
    pub(super) fn in_flight(&self) -> usize {
        self.lock().batches.values().map(|batch| batch.in_flight).sum()
    }

    /// The payload bytes of the messages of a subscription in flight.
    pub(super) fn bytes_in_flight(&self, subscription: &Arc<Subscription>) -> usize {
        let table = self.lock();
        let batches = table.batches.values().filter(|batch| Arc::ptr_eq(&batch.subscription, subscription));
        batches.map(|batch| batch.bytes_in_flight).sum()
    }

    /// When the lease of a delivery expires, as far as this process knows.
    pub(super) fn expires_at(&self, delivery: &Delivery) -> Option<Instant> {
        let table = self.lock();
        let batch = table.batches.get(&delivery.batch)?;
        Some(batch.renewed_at + delivery.subscription.lease_for)
    }

    /// All messages in flight.
    pub(super) fn unsettled(&self) -> Vec<Arc<Delivery>> {
        let table = self.lock();
        table.batches.values().flat_map(ClaimBatch::unsettled).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, LeaseTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseTable {
    fn end(&mut self, delivery: &Arc<Delivery>) -> bool {
        if delivery.ended.swap(true, SeqCst) {
            return false;
        }
        if let Some(batch) = self.batches.get_mut(&delivery.batch) {
            if let Some(slot) = batch.deliveries.get_mut(delivery.index) {
                *slot = None;
            }
            batch.in_flight -= 1;
            batch.bytes_in_flight -= delivery.payload_bytes();
            if batch.in_flight == 0 {
                self.batches.remove(&delivery.batch);
            }
        }
        true
    }

    /// The leases to renew now, by their duration, except those that have reached the maximum lease time.
    fn due(&self, now: Instant) -> HashMap<Duration, Vec<Arc<Delivery>>> {
        let mut due: HashMap<Duration, Vec<Arc<Delivery>>> = HashMap::new();
        for batch in self.batches.values() {
            let subscription = &batch.subscription;
            let is_due = now >= batch.renewed_at + subscription.lease_for / 3;
            if is_due && now < batch.claimed_at + subscription.max_lease {
                due.entry(subscription.lease_for).or_default().extend(batch.unsettled().cloned());
            }
        }
        due
    }

    /// Deliveries whose lease may have expired.
    fn expired(&self, now: Instant) -> Vec<Arc<Delivery>> {
        let expired =
            self.batches.values().filter(|batch| now >= batch.renewed_at + batch.subscription.lease_for);
        expired.flat_map(ClaimBatch::unsettled).filter(|delivery| !delivery.is_lost()).cloned().collect()
    }
}

impl ClaimBatch {
    fn unsettled(&self) -> impl Iterator<Item = &Arc<Delivery>> {
        self.deliveries.iter().flatten()
    }
}

/// Renews leases until `done` is cancelled.
pub(super) async fn renew_until_done(
    store: Arc<dyn Store>,
    leases: Arc<LeaseRegistry>,
    subscriptions: Vec<Arc<Subscription>>,
    store_outage: Arc<StoreOutage>,
    done: CancellationToken,
) {
    let shortest = subscriptions.iter().map(|subscription| subscription.lease_for).min();
    let tick = (shortest.unwrap_or(Duration::from_secs(60)) / 12)
        .clamp(Duration::from_millis(5), Duration::from_secs(5));
    while done.run_until_cancelled(sleep(tick)).await.is_some() {
        // At once: a renewal that waits must not let shorter leases expire.
        let due = leases.lock().due(Instant::now()).into_iter();
        let renewals = due.map(|(lease_for, deliveries)| {
            let (store, leases, store_outage) = (&store, &leases, &store_outage);
            async move { renew(store.as_ref(), leases, &deliveries, lease_for, store_outage).await }
        });
        join_all(renewals).await;
        let expired = leases.lock().expired(Instant::now());
        expired.iter().for_each(|delivery| delivery.lose());
        log_losses(&expired, "expired");
    }
}

async fn renew(
    store: &dyn Store,
    leases: &LeaseRegistry,
    deliveries: &[Arc<Delivery>],
    lease_for: Duration,
    store_outage: &StoreOutage,
) {
    let sent_at = Instant::now();
    let leases_to_renew: Vec<Lease> =
        deliveries.iter().map(|delivery| delivery.claimed.lease.clone()).collect();
    // No longer than until the leases may have expired: then the handlers must be cancelled, whether the store answers or
    // not.
    let renewed = timeout(lease_for * 2 / 3, store.renew(&leases_to_renew, lease_for)).await;
    let lost = match renewed.unwrap_or_else(|late| Err(Error::Unavailable(Box::new(late)))) {
        Ok(lost) => lost,
        Err(error) => return store_outage.report("renew leases", &error),
    };
    store_outage.resolved();
    let lost: HashSet<(MessageId, LeaseToken)> =
        lost.iter().map(|lease| (lease.id(), lease.token())).collect();
    let mut lost_deliveries = Vec::new();
    let mut table = leases.lock();
    for delivery in deliveries {
        if let Some(batch) = table.batches.get_mut(&delivery.batch) {
            batch.renewed_at = sent_at;
        }
        let lease = &delivery.claimed.lease;
        if !lost.contains(&(lease.id(), lease.token())) {
            continue;
        }
        delivery.lose();
        // A message that was settled during its renewal is not in the store any more either: the settler accounts for
        // it.
        let is_settling =
            delivery.is_buffered.load(SeqCst) || delivery.subscription.deliver.settles_itself(delivery);
        if !is_settling && table.end(delivery) {
            delivery.subscription.metrics.record_lost(Phase::Renew);
            lost_deliveries.push(Arc::clone(delivery));
        }
    }
    drop(table);
    log_losses(&lost_deliveries, "renew");
}

/// Up to this many losses at once are logged one by one; of the rest only the number.
const LOGGED_ONE_BY_ONE: usize = 5;

pub(super) fn log_losses(deliveries: &[Arc<Delivery>], phase: &'static str) {
    for delivery in deliveries.iter().take(LOGGED_ONE_BY_ONE) {
        let claimed = &delivery.claimed;
        tracing::warn!(
            name: "postrider.lease_lost",
            phase,
            queue = %claimed.lease.queue(),
            message_id = %claimed.id(),
            deliveries = claimed.deliveries,
            "lease lost ({phase}): another worker may deliver the message as well"
        );
    }
    if deliveries.len() > LOGGED_ONE_BY_ONE {
        let more = deliveries.len() - LOGGED_ONE_BY_ONE;
        tracing::warn!(name: "postrider.leases_lost", phase, more, "{more} more leases lost ({phase}): other workers may deliver these messages as well");
    }
}
