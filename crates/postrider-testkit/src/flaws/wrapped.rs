//! The seams of a sound store, with one thing broken on the way.

use super::Flaw;
use crate::Fixture;
use async_trait::async_trait;
use postrider_core::{
    Admission, Arrival, ClaimRequest, Claimed, ConsumerName, Error, Inbox, Lease, Message, MessageId,
    Ordering, Paused, PruneRequest, Pruned, QueueName, QueuePolicy, Reason, ScheduleName, Settle, Settlement,
    Store,
    limits::LONGEST_LEASE,
    schema::{Drift, Migrations, Schema},
    timetable::{Reading, Timetable},
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use uuid::Uuid;

/// What all handles of one flawed store have seen together.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The newest lease on each message: what a write without a token would hit.
    newest: HashMap<(QueueName, MessageId), Lease>,
    greatest: Option<MessageId>,
}

#[derive(Debug)]
pub(super) struct FlawedStore {
    pub(super) inner: Arc<dyn Store>,
    pub(super) flaw: Option<Flaw>,
    pub(super) seen: Arc<Mutex<Seen>>,
}

impl FlawedStore {
    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    /// The lease that a write without a token would hit.
    fn newest(&self, lease: &Lease) -> Lease {
        let seen = self.seen.lock().unwrap();
        seen.newest.get(&(lease.queue().clone(), lease.id())).unwrap_or(lease).clone()
    }

    fn bend(&self, Settle { lease, settlement }: &Settle) -> Settle {
        let without_token = match settlement {
            Settlement::Done | Settlement::Forward { .. } => Flaw::SettleWithoutToken,
            Settlement::Retry { .. } => Flaw::RetryWithoutToken,
            Settlement::Dead { .. } => Flaw::DeadWithoutToken,
            Settlement::Release | Settlement::Snooze { .. } => Flaw::ReleaseWithoutToken,
        };
        let lease = if self.has(without_token) { self.newest(lease) } else { lease.clone() };
        let settlement = match settlement.clone() {
            Settlement::Done if self.has(Flaw::DeadLetterOnSuccess) => {
                Settlement::Dead { reason: Reason::Rejected, error: None }
            }
            Settlement::Retry { after, error } if self.has(Flaw::ClientClock) => {
                Settlement::Retry { after: after + Duration::from_secs(3600), error }
            }
            Settlement::Dead { .. } if self.has(Flaw::DeathInSilence) => Settlement::Done,
            Settlement::Release | Settlement::Snooze { .. } if self.has(Flaw::ReleaseCounted) => {
                Settlement::Retry { after: Duration::ZERO, error: None }
            }
            as_told => as_told,
        };
        Settle { lease, settlement }
    }
}

#[async_trait]
impl Store for FlawedStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        let mut claimed = if self.has(Flaw::LeaseForEver) {
            self.inner.claim(&request.clone().with_lease_for(LONGEST_LEASE)).await?
        } else {
            self.inner.claim(request).await?
        };
        let mut seen = self.seen.lock().unwrap();
        if self.has(Flaw::CursorPolling) {
            claimed.retain(|each| Some(each.id()) >= seen.greatest);
        }
        for each in &claimed {
            seen.greatest = seen.greatest.max(Some(each.id()));
            seen.newest.insert((each.lease.queue().clone(), each.id()), each.lease.clone());
        }
        Ok(claimed)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        if self.has(Flaw::RenewWithoutToken) {
            let newest: Vec<_> = leases.iter().map(|lease| self.newest(lease)).collect();
            return self.inner.renew(&newest, lease_for).await;
        }
        self.inner.renew(leases, lease_for).await
    }

    async fn settle(&self, settlements: &[Settle]) -> Result<Vec<Lease>, Error> {
        let bent: Vec<_> = settlements.iter().map(|settle| self.bend(settle)).collect();
        let lost = self.inner.settle(&bent).await?;
        Ok(if self.has(Flaw::LossInSilence) { Vec::new() } else { lost })
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, Error> {
        self.inner.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<Paused>, Error> {
        self.inner.paused().await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.inner.ping().await
    }
}

#[derive(Debug)]
pub(super) struct FlawedSchema {
    pub(super) inner: Arc<dyn Schema>,
    pub(super) flaw: Option<Flaw>,
}

#[async_trait]
impl Schema for FlawedSchema {
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
        if self.flaw == Some(Flaw::OrderIgnored) {
            policy.ordering = Ordering::Unordered;
        }
        if self.flaw == Some(Flaw::TenantsIgnored) {
            policy.fair_by_tenant = false;
        }
        self.inner.declare(queue, &policy).await
    }
}

#[derive(Debug)]
pub(super) struct FlawedTimetable {
    pub(super) inner: Arc<dyn Timetable>,
    pub(super) flaw: Option<Flaw>,
}

#[async_trait]
impl Timetable for FlawedTimetable {
    async fn read(&self, schedule: &ScheduleName) -> Result<Reading, Error> {
        self.inner.read(schedule).await
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        let is_new = self.inner.tick(schedule, at, messages).await?;
        if !is_new && self.flaw == Some(Flaw::TickWithoutCompare) {
            // A schedule that nobody has heard of has no last tick.
            let unheard_of = ScheduleName::new(Uuid::new_v4().to_string())?;
            return self.inner.tick(&unheard_of, at, messages).await;
        }
        Ok(is_new)
    }
}

/// The inbox of a fixture, with a flaw.
#[derive(Debug)]
pub struct FlawedInbox<F> {
    pub(super) fixture: Arc<F>,
    pub(super) flaw: Option<Flaw>,
}

impl<F> Clone for FlawedInbox<F> {
    fn clone(&self) -> Self {
        Self { fixture: Arc::clone(&self.fixture), flaw: self.flaw }
    }
}

impl<F: Fixture> Inbox<F::Tx> for FlawedInbox<F> {
    async fn admit_all(
        &self,
        tx: &mut F::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        let inbox = self.fixture.inbox();
        match self.flaw {
            Some(Flaw::MarkOutsideTransaction) => {
                let mut own = self.fixture.begin().await;
                let admitted = inbox.admit_all(&mut own, consumer, arrivals).await;
                self.fixture.commit(own).await;
                admitted
            }
            Some(Flaw::MarkWithoutTenant) => {
                let ids: Vec<_> = arrivals.iter().map(|arrival| Arrival::new(arrival.id)).collect();
                inbox.admit_all(tx, consumer, &ids).await
            }
            Some(Flaw::MarkWithoutConsumer) => {
                inbox.admit_all(tx, &ConsumerName::new("everybody")?, arrivals).await
            }
            _ => inbox.admit_all(tx, consumer, arrivals).await,
        }
    }
}
