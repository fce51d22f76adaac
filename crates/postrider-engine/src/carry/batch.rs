//! One batch and no more: for jobs that are started by a clock.

use super::{Carrier, Delivery, Outcome, Subscription, meter::Phase};
use futures_util::future::join_all;
use postrider_core::{ClaimRequest, Error, Settle, Settlement};
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::SystemTime,
};
use tokio::time::Instant;

impl Carrier {
    /// Claims up to `limit` messages of each queue, delivers them all at once, settles them together, and answers how many there were.
    /// Leases are not renewed meanwhile: a delivery must not take longer than one lasts.
    pub(crate) async fn run_batch(&self, limit: usize) -> Result<usize, Error> {
        let mut claimed = 0;
        for subscription in &self.subscriptions {
            claimed += self.run_batch_of(subscription, limit).await?;
        }
        Ok(claimed)
    }

    async fn run_batch_of(&self, subscription: &Arc<Subscription>, limit: usize) -> Result<usize, Error> {
        let request = ClaimRequest::new(subscription.queue.clone(), limit)
            .with_lease_for(subscription.lease_for)
            .with_tenant_weights(subscription.tenant_weights.clone());
        let claimed = self.store.claim(&request).await?;
        let deliveries: Vec<_> = claimed
            .into_iter()
            .map(|claimed| Arc::new(Delivery::new(claimed, Arc::clone(subscription), 0)))
            .collect();
        let meter = &subscription.meter;
        meter.fetched(deliveries.len(), deliveries.iter().map(|delivery| delivery.claimed.due_at).min());
        meter.dispatched(deliveries.len());
        let started_at = Instant::now();
        let ended = join_all(deliveries.iter().map(|delivery| async move {
            delivery.begun.store(true, SeqCst);
            match subscription.deliver.deliver(delivery).await {
                Outcome::Settle(settlement) => return Some((delivery, settlement)),
                Outcome::Committed(settlement) => self.count(delivery, &settlement, started_at),
                Outcome::Lost => meter.lost(Phase::Settle),
                Outcome::Left => meter.lost(Phase::Left),
            }
            None
        }));
        let open: Vec<_> = ended.await.into_iter().flatten().collect();
        let settles: Vec<Settle> =
            open.iter().map(|(delivery, end)| delivery.claimed.lease.settle(end.clone())).collect();
        if !settles.is_empty() {
            let lost: HashSet<_> = self.store.settle(&settles).await?.into_iter().collect();
            for (delivery, settlement) in &open {
                if lost.contains(&delivery.claimed.lease) {
                    meter.lost(Phase::Settle);
                } else {
                    self.count(delivery, settlement, started_at);
                }
            }
        }
        Ok(deliveries.len())
    }

    fn count(&self, delivery: &Delivery, settlement: &Settlement, started_at: Instant) {
        let meter = &delivery.subscription.meter;
        meter.settled(settlement, started_at.elapsed(), delivery.age(SystemTime::now()));
    }
}
