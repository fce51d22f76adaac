//! Where faults strike: the seams that workers and producers go through.

use crate::{Call, TestStore};
use async_trait::async_trait;
use postrider_core::{
    Admission, Arrival, ClaimRequest, Claimed, ConsumerName, Error, Inbox, Lease, Message, Outbox, Parked,
    Paused, PruneRequest, Pruned, QueueName, Receive, ScheduleName, Settle, Settlement, Staged, Store,
    TimerName,
    timetable::{Reading, Timetable},
    transact::Transact,
};
use postrider_stores::memory::Transaction;
use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

#[async_trait]
impl Store for TestStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        {
            let mut state = self.lock();
            state.script.check(Call::Claim)?;
            if !state.is_rehearsed {
                state.script.check_rehearsed()?;
            }
        }
        let claimed = self.memory.claim(request).await?;
        let until = self.now() + request.lease_for();
        let mut state = self.lock();
        for claimed in &claimed {
            let fault = state.script.strike(&claimed.message);
            state.claims.enter(claimed, until, fault);
        }
        Ok(claimed)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        self.lock().script.check(Call::Renew)?;
        let lost = self.memory.renew(leases, lease_for).await?;
        let until = self.now() + lease_for;
        let mut state = self.lock();
        for lease in leases.iter().filter(|lease| !lost.contains(lease)) {
            if let Some(claim) = state.claims.get_mut(lease) {
                claim.until = until;
            }
        }
        Ok(lost)
    }

    async fn settle(&self, settlements: &[Settle]) -> Result<Vec<Lease>, Error> {
        let (late, in_time): (Vec<Settle>, Vec<Settle>) = {
            let mut state = self.lock();
            state.script.check(Call::Settle)?;
            settlements.iter().cloned().partition(|settle| state.claims.is_lost(&settle.lease))
        };
        let mut lost = self.memory.settle(&in_time).await?;
        let not_ours: HashSet<_> = lost.iter().map(|lease| (lease.id(), lease.token())).collect();
        let mut state = self.lock();
        for settle in &in_time {
            let lease = &settle.lease;
            if state.claims.get_mut(lease).is_some() {
                let is_ours = !not_ours.contains(&(lease.id(), lease.token()));
                state.claims.end(lease.id(), is_ours && settle.settlement == Settlement::Done);
            }
        }
        lost.extend(late.into_iter().map(|settle| settle.lease));
        Ok(lost)
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, Error> {
        self.memory.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<Paused>, Error> {
        self.memory.paused().await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.memory.ping().await
    }
}

impl Outbox<Transaction> for TestStore {
    async fn stage_all(&self, tx: &mut Transaction, messages: &[Message]) -> Result<Staged, Error> {
        self.lock().script.check(Call::Stage)?;
        self.memory.stage_all(tx, messages).await
    }

    async fn cancel_timer(
        &self,
        tx: &mut Transaction,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        self.lock().script.check(Call::Stage)?;
        self.memory.cancel_timer(tx, queue, timer).await
    }
}

impl Inbox<Transaction> for TestStore {
    async fn admit_all(
        &self,
        tx: &mut Transaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        self.lock().script.check(Call::Admit)?;
        self.memory.admit_all(tx, consumer, arrivals).await
    }
}

impl Receive for TestStore {
    type Store = Self;

    fn store(&self) -> Self {
        self.clone()
    }

    async fn park_all(&self, tx: &mut Transaction, parked: &[Parked]) -> Result<(), Error> {
        self.memory.park_all(tx, parked).await
    }

    async fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        self.memory.count_all(consumer, arrivals, by).await
    }

    async fn uncount_all(
        &self,
        tx: &mut Transaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<(), Error> {
        self.memory.uncount_all(tx, consumer, arrivals).await
    }

    async fn verify(&self, tx: &mut Transaction) -> Result<(), Error> {
        self.memory.verify(tx).await
    }
}

impl Transact for TestStore {
    type Tx = Transaction;

    async fn begin(&self) -> Result<Transaction, Error> {
        self.lock().script.check(Call::Begin)?;
        Ok(Self::begin(self))
    }

    async fn settle_in(&self, tx: &mut Transaction, settle: &Settle) -> Result<bool, Error> {
        {
            let mut state = self.lock();
            state.script.check(Call::Settle)?;
            if state.claims.is_lost(&settle.lease) {
                return Ok(false);
            }
        }
        let is_ours = self.memory.settle_in(tx, settle).await?;
        if let Some(claim) = self.lock().claims.get_mut(&settle.lease) {
            claim.ends = is_ours && settle.settlement == Settlement::Done;
        }
        Ok(is_ours)
    }

    async fn commit(&self, tx: Transaction) -> Result<(), Error> {
        self.lock().script.check(Call::Commit)?;
        Transact::commit(&self.memory, tx).await
    }

    async fn rollback(&self, tx: Transaction) -> Result<(), Error> {
        Transact::rollback(&self.memory, tx).await
    }
}

#[async_trait]
impl Timetable for TestStore {
    async fn read(&self, schedule: &ScheduleName) -> Result<Reading, Error> {
        self.memory.read(schedule).await
    }

    /// A tick is a transaction: it begins, stages and commits.
    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        for call in [Call::Begin, Call::Stage, Call::Commit] {
            self.lock().script.check(call)?;
        }
        self.memory.tick(schedule, at, messages).await
    }
}
