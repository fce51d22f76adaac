//! The store traits at which faults are injected: those that workers, consumers and producers call.

use crate::{StoreCall, TestStore};
use async_trait::async_trait;
use postrider_core::{
    Admission, Arrival, AuditError, AuditEvent, AuditSink, ClaimRequest, ClaimedMessage, ConsumerName,
    DeadLetter, Error, Lease, LeaseSettlement, Message, MessageId, PauseRecord, PruneReport, PruneRequest,
    QueueName, Reason, ScheduleName, Settlement, StageReport, Store, TimerName, TxBackend,
    follow_up::{FollowUpGroup, GroupProgress},
    saga::LogEntry,
    timetable::ScheduleReading,
};
use postrider_stores::memory::MemoryTransaction;
use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, SystemTime},
};

#[async_trait]
impl Store for TestStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        {
            let mut state = self.lock();
            state.faults.check_call(StoreCall::Claim)?;
            if !state.has_injection {
                state.faults.check_injectable()?;
            }
        }
        let claimed = self.memory.claim(request).await?;
        let until = self.now() + request.lease_for();
        let mut state = self.lock();
        for claimed in &claimed {
            let fault = state.faults.count_delivery(&claimed.message);
            state.claims.insert(claimed, until, fault);
        }
        Ok(claimed)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        self.lock().faults.check_call(StoreCall::Renew)?;
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

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        let (late, in_time): (Vec<LeaseSettlement>, Vec<LeaseSettlement>) = {
            let mut state = self.lock();
            state.faults.check_call(StoreCall::Settle)?;
            settlements.iter().cloned().partition(|settle| state.claims.lose_by_fault(&settle.lease))
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

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        self.memory.count_isolated(lease).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        self.memory.prune(request).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.memory.paused().await
    }

    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        Store::read_schedule(&self.memory, schedule).await
    }

    /// A tick is a transaction: it begins, stages and commits.
    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        for call in [StoreCall::Begin, StoreCall::Stage, StoreCall::Commit] {
            self.lock().faults.check_call(call)?;
        }
        Store::tick(&self.memory, schedule, at, messages).await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.memory.ping().await
    }
}

impl TxBackend for TestStore {
    type Tx = MemoryTransaction;
    type Backend = Self;

    fn backend(&self) -> Self {
        self.clone()
    }

    fn ledger(&self) -> Arc<dyn AuditSink> {
        TxBackend::ledger(&self.memory)
    }

    async fn begin(&self) -> Result<MemoryTransaction, Error> {
        self.lock().faults.check_call(StoreCall::Begin)?;
        Ok(Self::begin(self))
    }

    async fn verify(&self, tx: &mut MemoryTransaction) -> Result<(), Error> {
        TxBackend::verify(&self.memory, tx).await
    }

    async fn commit(&self, tx: MemoryTransaction) -> Result<(), Error> {
        self.lock().faults.check_call(StoreCall::Commit)?;
        TxBackend::commit(&self.memory, tx).await
    }

    async fn rollback(&self, tx: MemoryTransaction) -> Result<(), Error> {
        TxBackend::rollback(&self.memory, tx).await
    }

    async fn stage_in(&self, tx: &mut MemoryTransaction, messages: &[Message]) -> Result<StageReport, Error> {
        self.lock().faults.check_call(StoreCall::Stage)?;
        self.memory.stage_in(tx, messages).await
    }

    async fn cancel_timer_in(
        &self,
        tx: &mut MemoryTransaction,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        self.lock().faults.check_call(StoreCall::Stage)?;
        self.memory.cancel_timer_in(tx, queue, timer).await
    }

    async fn settle_in(&self, tx: &mut MemoryTransaction, settle: &LeaseSettlement) -> Result<bool, Error> {
        {
            let mut state = self.lock();
            state.faults.check_call(StoreCall::Settle)?;
            if state.claims.lose_by_fault(&settle.lease) {
                return Ok(false);
            }
        }
        let is_ours = self.memory.settle_in(tx, settle).await?;
        if let Some(claim) = self.lock().claims.get_mut(&settle.lease) {
            claim.settled_in_transaction = is_ours && settle.settlement == Settlement::Done;
        }
        Ok(is_ours)
    }

    async fn admit_in(
        &self,
        tx: &mut MemoryTransaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        self.lock().faults.check_call(StoreCall::Admit)?;
        self.memory.admit_in(tx, consumer, arrivals).await
    }

    async fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        TxBackend::count_all(&self.memory, consumer, arrivals, by).await
    }

    async fn uncount_all(
        &self,
        tx: &mut MemoryTransaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<(), Error> {
        TxBackend::uncount_all(&self.memory, tx, consumer, arrivals).await
    }

    async fn dead_letter_all(&self, tx: &mut MemoryTransaction, letters: &[DeadLetter]) -> Result<(), Error> {
        TxBackend::dead_letter_all(&self.memory, tx, letters).await
    }

    async fn land(
        &self,
        tx: &mut MemoryTransaction,
        lease: &Lease,
        group: &FollowUpGroup,
    ) -> Result<GroupProgress, Error> {
        TxBackend::land(&self.memory, tx, lease, group).await
    }

    async fn abandon(
        &self,
        tx: &mut MemoryTransaction,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> Result<bool, Error> {
        TxBackend::abandon(&self.memory, tx, lease, reason, error).await
    }

    async fn schedule(
        &self,
        tx: &mut MemoryTransaction,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Option<SystemTime>, Error> {
        TxBackend::schedule(&self.memory, tx, lease, not_before, at_least).await
    }

    async fn record(&self, tx: &mut MemoryTransaction, events: &[AuditEvent]) -> Result<(), AuditError> {
        TxBackend::record(&self.memory, tx, events).await
    }

    async fn read_log(&self, tx: &mut MemoryTransaction, saga: MessageId) -> Result<Vec<LogEntry>, Error> {
        TxBackend::read_log(&self.memory, tx, saga).await
    }

    async fn append_log(
        &self,
        tx: &mut MemoryTransaction,
        saga: MessageId,
        after: usize,
        entry: &LogEntry,
    ) -> Result<(), Error> {
        TxBackend::append_log(&self.memory, tx, saga, after, entry).await
    }

    async fn forget_log(&self, tx: &mut MemoryTransaction, saga: MessageId) -> Result<(), Error> {
        TxBackend::forget_log(&self.memory, tx, saga).await
    }
}
