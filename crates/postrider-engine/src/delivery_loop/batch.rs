//! One batch and no more: for scheduled jobs.

use super::{Delivery, DeliveryEngine, Outcome, Subscription, metrics::Phase};
use futures_util::future::join_all;
use postrider_core::{ClaimRequest, Error, LeaseSettlement, Settlement};
use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::SystemTime,
};
use tokio::time::Instant;

impl DeliveryEngine {
    /// Claims up to `limit` messages of each queue, delivers them all at once, settles them in one batch, and returns how
    /// many there were. Leases are not renewed meanwhile: a delivery must not take longer than its lease.
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
        let metrics = &subscription.metrics;
        metrics.record_claimed(
            deliveries.len(),
            deliveries.iter().map(|delivery| delivery.claimed.due_at).min(),
        );
        metrics.record_dispatched(deliveries.len());
        let started_at = Instant::now();
        let outcomes = join_all(deliveries.iter().map(|delivery| async move {
            delivery.started.store(true, SeqCst);
            match subscription.deliver.deliver(delivery).await {
                Outcome::Settle(settlement) => return Some((delivery, settlement)),
                Outcome::Committed(settlement) => self.record_settled(delivery, &settlement, started_at),
                Outcome::Lost => metrics.record_lost(Phase::Settle),
                Outcome::LeftToLease => metrics.record_lost(Phase::LeftToLease),
            }
            None
        }));
        let unsettled: Vec<_> = outcomes.await.into_iter().flatten().collect();
        let settlements: Vec<LeaseSettlement> = unsettled
            .iter()
            .map(|(delivery, settlement)| delivery.claimed.lease.settle(settlement.clone()))
            .collect();
        if !settlements.is_empty() {
            let lost: HashSet<_> = self.store.settle(&settlements).await?.into_iter().collect();
            for (delivery, settlement) in &unsettled {
                if lost.contains(&delivery.claimed.lease) {
                    metrics.record_lost(Phase::Settle);
                } else {
                    self.record_settled(delivery, settlement, started_at);
                }
            }
        }
        Ok(deliveries.len())
    }

    fn record_settled(&self, delivery: &Delivery, settlement: &Settlement, started_at: Instant) {
        let metrics = &delivery.subscription.metrics;
        metrics.record_settled(settlement, started_at.elapsed(), delivery.age(SystemTime::now()));
    }
}
