//! Wrappers of a store's traits that add one defect.

use super::Defect;
use crate::Fixture;
use async_trait::async_trait;
use postrider_core::{
    Admission, Arrival, Backend, CheckupRequest, ClaimRequest, ClaimedMessage, ConsumerName, Error, Finding,
    Inbox, Lease, LeaseSettlement, Message, MessageId, Ordering, PauseRecord, PruneReport, PruneRequest,
    QueueName, QueuePolicy, Reason, ScheduleName, Settlement, Store,
    limits::LONGEST_LEASE,
    schema::{Drift, Migrations, Schema},
    timetable::ScheduleReading,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use uuid::Uuid;

/// The claims that all handles of one broken store have seen.
#[derive(Debug, Default)]
pub(super) struct ClaimLog {
    /// The newest lease on each message, which a write without a token would affect.
    newest: HashMap<(QueueName, MessageId), Lease>,
    greatest: Option<MessageId>,
}

#[derive(Debug)]
pub(super) struct BrokenStore {
    pub(super) inner: Arc<dyn Backend>,
    pub(super) defect: Option<Defect>,
    pub(super) seen: Arc<Mutex<ClaimLog>>,
}

impl BrokenStore {
    fn has(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }

    /// The lease that a write without a token would affect.
    fn newest(&self, lease: &Lease) -> Lease {
        let seen = self.seen.lock().unwrap();
        seen.newest.get(&(lease.queue().clone(), lease.id())).unwrap_or(lease).clone()
    }

    fn apply_defect(&self, LeaseSettlement { lease, settlement }: &LeaseSettlement) -> LeaseSettlement {
        let without_token = match settlement {
            Settlement::Done | Settlement::Forward { .. } => Defect::SettleWithoutToken,
            Settlement::Retry { .. } => Defect::RetryWithoutToken,
            Settlement::Dead { .. } => Defect::DeadWithoutToken,
            Settlement::Release | Settlement::Snooze { .. } => Defect::ReleaseWithoutToken,
        };
        let lease = if self.has(without_token) { self.newest(lease) } else { lease.clone() };
        let settlement = match settlement.clone() {
            Settlement::Done if self.has(Defect::DeadLetterOnSuccess) => {
                Settlement::Dead { reason: Reason::Rejected, error: None }
            }
            Settlement::Retry { after, error } if self.has(Defect::ClientClock) => {
                Settlement::Retry { after: after + Duration::from_secs(3600), error }
            }
            Settlement::Dead { .. } if self.has(Defect::DeadLetterDropped) => Settlement::Done,
            Settlement::Release | Settlement::Snooze { .. } if self.has(Defect::ReleaseCounted) => {
                Settlement::Retry { after: Duration::ZERO, error: None }
            }
            unchanged => unchanged,
        };
        LeaseSettlement { lease, settlement }
    }
}

#[async_trait]
impl Store for BrokenStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        let mut claimed = if self.has(Defect::LeaseNeverExpires) {
            self.inner.claim(&request.clone().with_lease_for(LONGEST_LEASE)).await?
        } else {
            self.inner.claim(request).await?
        };
        if self.has(Defect::EveryClaimCounts) {
            claimed.iter_mut().for_each(|each| each.isolated = each.expired_leases());
        }
        let mut seen = self.seen.lock().unwrap();
        if self.has(Defect::CursorPolling) {
            claimed.retain(|each| Some(each.id()) >= seen.greatest);
        }
        for each in &claimed {
            seen.greatest = seen.greatest.max(Some(each.id()));
            seen.newest.insert((each.lease.queue().clone(), each.id()), each.lease.clone());
        }
        Ok(claimed)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        if self.has(Defect::RenewWithoutToken) {
            let newest: Vec<_> = leases.iter().map(|lease| self.newest(lease)).collect();
            return self.inner.renew(&newest, lease_for).await;
        }
        self.inner.renew(leases, lease_for).await
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        let altered: Vec<_> = settlements.iter().map(|settle| self.apply_defect(settle)).collect();
        let lost = self.inner.settle(&altered).await?;
        Ok(if self.has(Defect::LostLeasesUnreported) { Vec::new() } else { lost })
    }

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        if self.has(Defect::CountIsolatedWithoutToken) {
            return self.inner.count_isolated(&self.newest(lease)).await;
        }
        self.inner.count_isolated(lease).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        self.inner.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.inner.paused().await
    }

    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        self.inner.read_schedule(schedule).await
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let is_new = self.inner.tick(schedule, at, messages).await?;
        if !is_new && self.has(Defect::TickWithoutCompare) {
            // An unknown schedule has no last tick.
            let unknown = ScheduleName::new(Uuid::new_v4().to_string())?;
            return self.inner.tick(&unknown, at, messages).await;
        }
        Ok(is_new)
    }

    async fn ping(&self) -> Result<(), Error> {
        self.inner.ping().await
    }
}

postrider_core::forward_backend!(BrokenStore, inner: notifier, inspect, operate);

#[async_trait]
impl Schema for BrokenStore {
    async fn migrate(&self) -> Result<(), Error> {
        self.inner.migrate().await
    }

    async fn migrations(&self) -> Result<Migrations, Error> {
        self.inner.migrations().await
    }

    async fn validate(&self) -> Result<Vec<Drift>, Error> {
        self.inner.validate().await
    }

    fn print(&self) -> String {
        self.inner.print()
    }

    async fn declare(&self, queue: &QueueName, policy: &QueuePolicy) -> Result<(), Error> {
        let mut policy = policy.clone();
        if self.has(Defect::OrderingIgnored) {
            policy.ordering = Ordering::Unordered;
        }
        if self.has(Defect::TenantsIgnored) {
            policy.fair_by_tenant = false;
        }
        self.inner.declare(queue, &policy).await
    }

    async fn checkup(&self, request: &CheckupRequest) -> Result<Vec<Finding>, Error> {
        self.inner.checkup(request).await
    }
}

/// The inbox of a fixture, with a defect.
#[derive(Debug)]
pub struct BrokenInbox<F> {
    pub(super) fixture: Arc<F>,
    pub(super) defect: Option<Defect>,
}

impl<F> Clone for BrokenInbox<F> {
    fn clone(&self) -> Self {
        Self { fixture: Arc::clone(&self.fixture), defect: self.defect }
    }
}

impl<F: Fixture> Inbox<F::Tx> for BrokenInbox<F> {
    async fn admit_all(
        &self,
        tx: &mut F::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        let inbox = self.fixture.inbox();
        match self.defect {
            Some(Defect::AdmissionOutsideTransaction) => {
                let mut own = self.fixture.begin().await;
                let admitted = inbox.admit_all(&mut own, consumer, arrivals).await;
                self.fixture.commit(own).await;
                admitted
            }
            Some(Defect::DeduplicationIgnoresTenant) => {
                let ids: Vec<_> = arrivals.iter().map(|arrival| Arrival::new(arrival.id)).collect();
                inbox.admit_all(tx, consumer, &ids).await
            }
            Some(Defect::DeduplicationIgnoresConsumer) => {
                inbox.admit_all(tx, &ConsumerName::new("everybody")?, arrivals).await
            }
            _ => inbox.admit_all(tx, consumer, arrivals).await,
        }
    }
}
