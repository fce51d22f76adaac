//! A store whose clock differs from that of the process.

use async_trait::async_trait;
use postrider_core::{
    Backend, ClaimRequest, ClaimedMessage, Error, Lease, LeaseSettlement, Message, PauseRecord, PruneReport,
    PruneRequest, ScheduleName, Store, timetable::ScheduleReading,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// By how much the store's clock differs.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shift {
    Ahead(Duration),
    Behind(Duration),
}

/// Shifts every time that reaches the process. The store itself knows durations only.
#[derive(Debug)]
pub(crate) struct ShiftedClock {
    pub(crate) store: Arc<dyn Backend>,
    pub(crate) shift: Shift,
}

impl ShiftedClock {
    fn shifted(&self, at: SystemTime) -> SystemTime {
        match self.shift {
            Shift::Ahead(by) => at + by,
            Shift::Behind(by) => at - by,
        }
    }
}

#[async_trait]
impl Store for ShiftedClock {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        let mut claimed = self.store.claim(request).await?;
        for each in &mut claimed {
            each.staged_at = self.shifted(each.staged_at);
            each.due_at = self.shifted(each.due_at);
            each.claimed_at = self.shifted(each.claimed_at);
            each.first_failed_at = each.first_failed_at.map(|at| self.shifted(at));
        }
        Ok(claimed)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        self.store.renew(leases, lease_for).await
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        self.store.settle(settlements).await
    }

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        self.store.count_isolated(lease).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        self.store.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.store.paused().await
    }

    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        self.store.read_schedule(schedule).await
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        self.store.tick(schedule, at, messages).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.store.ping().await
    }
}

postrider_core::forward_backend!(ShiftedClock, store: notifier, inspect, operate, schema);
