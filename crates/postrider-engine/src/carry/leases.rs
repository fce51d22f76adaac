//! The leases of what is in hand, renewed while it is.
//!
//! A lease is renewed when a third of it has passed, for what waits in the hall as for what runs. What the store answers as
//! lost is lost. When the store does not answer, the process goes by its own clock, counted from before the claim was sent:
//! once a lease may have lapsed, whoever delivers the message is told, and the store decides about what is settled then.

use super::{Delivery, Subscription, meter::Phase, trouble::Trouble};
use postrider_core::{Error, Lease, LeaseToken, MessageId, Store};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering::SeqCst},
    time::Duration,
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(super) struct Leases(Mutex<Ledger>);

#[derive(Debug, Default)]
struct Ledger {
    last: u64,
    /// A handful: a table with a strong hash would cost more to ask.
    batches: BTreeMap<u64, Batch>,
}

/// What one claim brought.
#[derive(Debug)]
struct Batch {
    deliveries: Vec<Arc<Delivery>>,
    /// How many of them are still in hand.
    open: usize,
    claimed_at: Instant,
    renewed_at: Instant,
}

impl Leases {
    /// Notes what was claimed by a request that was sent at `claimed_at`.
    pub(super) fn enter(
        &self,
        subscription: &Arc<Subscription>,
        claimed: Vec<postrider_core::Claimed>,
        claimed_at: Instant,
    ) -> Vec<Arc<Delivery>> {
        let mut ledger = self.lock();
        ledger.last += 1;
        let number = ledger.last;
        let deliveries: Vec<_> = claimed
            .into_iter()
            .map(|claimed| Arc::new(Delivery::new(claimed, Arc::clone(subscription), number)))
            .collect();
        let (open, copies) = (deliveries.len(), deliveries.clone());
        ledger.batches.insert(number, Batch { deliveries: copies, open, claimed_at, renewed_at: claimed_at });
        deliveries
    }

    /// Ends deliveries, and answers for each whether this call did: a delivery ends once.
    pub(super) fn end<'d>(&self, deliveries: impl Iterator<Item = &'d Arc<Delivery>>) -> Vec<bool> {
        let mut ledger = self.lock();
        deliveries.map(|delivery| ledger.end(delivery)).collect()
    }

    /// How many messages are in hand: waiting, running or unsettled.
    pub(super) fn in_hand(&self) -> usize {
        self.lock().batches.values().map(|batch| batch.open).sum()
    }

    /// Until when a delivery is ours, as far as this process knows.
    pub(super) fn until(&self, delivery: &Delivery) -> Option<Instant> {
        let ledger = self.lock();
        let batch = ledger.batches.get(&delivery.batch)?;
        Some(batch.renewed_at + delivery.subscription.lease_for)
    }

    /// Everything in hand, when time is up.
    pub(super) fn open(&self) -> Vec<Arc<Delivery>> {
        let ledger = self.lock();
        let all = ledger.batches.values().flat_map(|batch| &batch.deliveries);
        all.filter(|delivery| !delivery.ended.load(SeqCst)).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn end(&mut self, delivery: &Arc<Delivery>) -> bool {
        if delivery.ended.swap(true, SeqCst) {
            return false;
        }
        if let Some(batch) = self.batches.get_mut(&delivery.batch) {
            batch.open -= 1;
            if batch.open == 0 {
                self.batches.remove(&delivery.batch);
            }
        }
        true
    }

    /// What has to be renewed now, by how long it is leased; and what can no longer be, because it was held for too long.
    fn due(&self, now: Instant) -> HashMap<Duration, Vec<Arc<Delivery>>> {
        let mut due: HashMap<Duration, Vec<Arc<Delivery>>> = HashMap::new();
        for batch in self.batches.values() {
            let Some(first) = batch.deliveries.first() else { continue };
            let subscription = &first.subscription;
            let is_due = now >= batch.renewed_at + subscription.lease_for / 3;
            if is_due && now < batch.claimed_at + subscription.hold_for {
                let open = batch.deliveries.iter().filter(|delivery| !delivery.ended.load(SeqCst));
                due.entry(subscription.lease_for).or_default().extend(open.cloned());
            }
        }
        due
    }

    /// What may have lapsed already.
    fn lapsed(&self, now: Instant) -> Vec<Arc<Delivery>> {
        let lapsed = self.batches.values().filter(|batch| {
            batch
                .deliveries
                .first()
                .is_some_and(|first| now >= batch.renewed_at + first.subscription.lease_for)
        });
        let lapsed = lapsed.flat_map(|batch| &batch.deliveries);
        lapsed.filter(|delivery| !delivery.ended.load(SeqCst) && !delivery.is_lost()).cloned().collect()
    }
}

/// Renews leases until everything is over.
pub(super) async fn keep(
    store: Arc<dyn Store>,
    leases: Arc<Leases>,
    subscriptions: Vec<Arc<Subscription>>,
    trouble: Arc<Trouble>,
    over: CancellationToken,
) {
    let shortest = subscriptions.iter().map(|subscription| subscription.lease_for).min();
    let tick = (shortest.unwrap_or(Duration::from_secs(60)) / 12)
        .clamp(Duration::from_millis(5), Duration::from_secs(5));
    while over.run_until_cancelled(sleep(tick)).await.is_some() {
        let due = leases.lock().due(Instant::now());
        for (lease_for, deliveries) in due {
            renew(store.as_ref(), &leases, &deliveries, lease_for, &trouble).await;
        }
        let lapsed = leases.lock().lapsed(Instant::now());
        lapsed.iter().for_each(|delivery| delivery.lose());
        tell_losses(&lapsed, "lapsed");
    }
}

async fn renew(
    store: &dyn Store,
    leases: &Leases,
    deliveries: &[Arc<Delivery>],
    lease_for: Duration,
    trouble: &Trouble,
) {
    let sent_at = Instant::now();
    let proofs: Vec<Lease> = deliveries.iter().map(|delivery| delivery.claimed.lease.clone()).collect();
    // Until the leases may have lapsed, and no longer: whoever waits on must be told then, whether the store answers or not.
    let answer = timeout(lease_for * 2 / 3, store.renew(&proofs, lease_for)).await;
    let lost = match answer.unwrap_or_else(|late| Err(Error::Unavailable(Box::new(late)))) {
        Ok(lost) => lost,
        Err(error) => return trouble.happened("renewing leases", &error),
    };
    trouble.is_over();
    let lost: HashSet<(MessageId, LeaseToken)> =
        lost.iter().map(|lease| (lease.id(), lease.token())).collect();
    let mut told = Vec::new();
    let mut ledger = leases.lock();
    for delivery in deliveries {
        if let Some(batch) = ledger.batches.get_mut(&delivery.batch) {
            batch.renewed_at = sent_at;
        }
        let lease = &delivery.claimed.lease;
        if !lost.contains(&(lease.id(), lease.token())) {
            continue;
        }
        delivery.lose();
        // What was settled while it was being renewed is not there any more either: whoever settles it knows.
        let is_settling = delivery.on_desk.load(SeqCst) || delivery.subscription.deliver.commits(delivery);
        if !is_settling && ledger.end(delivery) {
            delivery.subscription.meter.lost(Phase::Renew);
            told.push(Arc::clone(delivery));
        }
    }
    drop(ledger);
    tell_losses(&told, "renew");
}

/// So many losses at once are told one by one; of the rest only the number.
const TOLD: usize = 5;

pub(super) fn tell_losses(deliveries: &[Arc<Delivery>], phase: &'static str) {
    for delivery in deliveries.iter().take(TOLD) {
        let claimed = &delivery.claimed;
        tracing::warn!(
            name: "postrider.lease_lost",
            phase,
            queue = %claimed.lease.queue(),
            message = %claimed.id(),
            deliveries = claimed.deliveries,
            "the lease was lost: somebody else may deliver the message too"
        );
    }
    if deliveries.len() > TOLD {
        let more = deliveries.len() - TOLD;
        tracing::warn!(name: "postrider.leases_lost", phase, more, "and so were others, with it");
    }
}
