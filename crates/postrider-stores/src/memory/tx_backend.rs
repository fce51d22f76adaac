//! What runners do in a transaction in memory, duty by duty: each has a module of its own.

use super::{MemoryStore, MemoryTransaction, inbox::LockWait};
use postrider_core::{
    Admission, Arrival, AuditError, AuditEvent, AuditSink, ConsumerName, DeadLetter, Error, Lease,
    LeaseSettlement, Message, MessageId, QueueName, Reason, StageReport, TimerName, TxBackend,
    follow_up::{FollowUpGroup, GroupProgress},
    saga::LogEntry,
    trace,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

impl TxBackend for MemoryStore {
    type Tx = MemoryTransaction;
    type Backend = Self;

    fn backend(&self) -> Self {
        self.clone()
    }

    fn ledger(&self) -> Arc<dyn AuditSink> {
        Arc::new(Self::ledger(self))
    }

    async fn begin(&self) -> Result<MemoryTransaction, Error> {
        Ok(Self::begin(self))
    }

    async fn settle_in(&self, tx: &mut MemoryTransaction, settle: &LeaseSettlement) -> Result<bool, Error> {
        tx.check_store(self)?;
        let is_leased = self.lock().holds(&settle.lease);
        tx.settle(settle.clone());
        Ok(is_leased)
    }

    async fn verify(&self, tx: &mut MemoryTransaction) -> Result<(), Error> {
        Self::verify(self, tx)
    }

    async fn commit(&self, tx: MemoryTransaction) -> Result<(), Error> {
        tx.commit_settled()
    }

    async fn rollback(&self, tx: MemoryTransaction) -> Result<(), Error> {
        tx.rollback();
        Ok(())
    }

    async fn stage_in(&self, tx: &mut MemoryTransaction, messages: &[Message]) -> Result<StageReport, Error> {
        tx.check_store(self)?;
        self.limits.check(messages)?;
        Ok(tx.stage_all(&trace::stamped(messages)))
    }

    async fn cancel_timer_in(
        &self,
        tx: &mut MemoryTransaction,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        tx.check_store(self)?;
        Ok(tx.cancel_timer(queue, timer))
    }

    async fn admit_in(
        &self,
        tx: &mut MemoryTransaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        tx.check_store(self)?;
        loop {
            // Created before the attempt, so that no end in between is missed.
            let ended = self.shared.ended.notified();
            let holder = match tx.admit(consumer, arrivals) {
                Ok(admitted) => return Ok(admitted),
                Err(holder) => holder,
            };
            let _waiting = LockWait::register(holder, tx.id(), self)?;
            ended.await;
        }
    }

    async fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        Self::count_all(self, consumer, arrivals, by)
    }

    async fn uncount_all(
        &self,
        tx: &mut MemoryTransaction,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<(), Error> {
        Self::uncount_all(self, tx, consumer, arrivals)
    }

    async fn dead_letter_all(
        &self,
        tx: &mut MemoryTransaction,
        dead_letters: &[DeadLetter],
    ) -> Result<(), Error> {
        Self::dead_letter_all(self, tx, dead_letters)
    }

    async fn land(
        &self,
        tx: &mut MemoryTransaction,
        lease: &Lease,
        group: &FollowUpGroup,
    ) -> Result<GroupProgress, Error> {
        Self::land(self, tx, lease, group).await
    }

    async fn abandon(
        &self,
        tx: &mut MemoryTransaction,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> Result<bool, Error> {
        Self::abandon(self, tx, lease, reason, error).await
    }

    async fn schedule(
        &self,
        tx: &mut MemoryTransaction,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Option<SystemTime>, Error> {
        Self::schedule(self, tx, lease, not_before, at_least).await
    }

    async fn record(&self, tx: &mut MemoryTransaction, events: &[AuditEvent]) -> Result<(), AuditError> {
        Self::record(self, tx, events)
    }

    async fn read_log(&self, tx: &mut MemoryTransaction, saga: MessageId) -> Result<Vec<LogEntry>, Error> {
        Self::read_log(self, tx, saga).await
    }

    async fn append_log(
        &self,
        tx: &mut MemoryTransaction,
        saga: MessageId,
        after: usize,
        entry: &LogEntry,
    ) -> Result<(), Error> {
        Self::append_log(self, tx, saga, after, entry)
    }

    async fn forget_log(&self, tx: &mut MemoryTransaction, saga: MessageId) -> Result<(), Error> {
        Self::forget_log(self, tx, saga)
    }
}
