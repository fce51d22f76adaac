//! Transactions without deduplication records.

use postrider_core::{
    Admission, Arrival, AuditError, AuditEvent, AuditSink, ConsumerName, DeadLetter, Error, Lease,
    LeaseSettlement, Message, MessageId, QueueName, Reason, StageReport, TimerName, TxBackend,
    follow_up::{FollowUpGroup, GroupProgress},
    saga::LogEntry,
};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Treats every message as new, and does not check whether a handler has ignored an error.
#[derive(Debug, Clone)]
pub(super) struct WithoutInbox<B>(pub(super) B);

impl<B: TxBackend> TxBackend for WithoutInbox<B> {
    type Tx = B::Tx;
    type Backend = B::Backend;

    fn backend(&self) -> B::Backend {
        self.0.backend()
    }

    fn ledger(&self) -> Arc<dyn AuditSink> {
        self.0.ledger()
    }

    async fn begin(&self) -> Result<B::Tx, Error> {
        self.0.begin().await
    }

    async fn verify(&self, _: &mut B::Tx) -> Result<(), Error> {
        Ok(())
    }

    async fn commit(&self, tx: B::Tx) -> Result<(), Error> {
        self.0.commit(tx).await
    }

    async fn rollback(&self, tx: B::Tx) -> Result<(), Error> {
        self.0.rollback(tx).await
    }

    async fn stage_in(&self, tx: &mut B::Tx, messages: &[Message]) -> Result<StageReport, Error> {
        self.0.stage_in(tx, messages).await
    }

    async fn cancel_timer_in(
        &self,
        tx: &mut B::Tx,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        self.0.cancel_timer_in(tx, queue, timer).await
    }

    async fn settle_in(&self, tx: &mut B::Tx, settle: &LeaseSettlement) -> Result<bool, Error> {
        self.0.settle_in(tx, settle).await
    }

    async fn admit_in(
        &self,
        _: &mut B::Tx,
        _: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        Ok(vec![Admission::First; arrivals.len()])
    }

    async fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        self.0.count_all(consumer, arrivals, by).await
    }

    async fn uncount_all(
        &self,
        tx: &mut B::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<(), Error> {
        self.0.uncount_all(tx, consumer, arrivals).await
    }

    async fn dead_letter_all(&self, tx: &mut B::Tx, dead_letters: &[DeadLetter]) -> Result<(), Error> {
        self.0.dead_letter_all(tx, dead_letters).await
    }

    async fn land(
        &self,
        tx: &mut B::Tx,
        lease: &Lease,
        group: &FollowUpGroup,
    ) -> Result<GroupProgress, Error> {
        self.0.land(tx, lease, group).await
    }

    async fn abandon(
        &self,
        tx: &mut B::Tx,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> Result<bool, Error> {
        self.0.abandon(tx, lease, reason, error).await
    }

    async fn schedule(
        &self,
        tx: &mut B::Tx,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Option<SystemTime>, Error> {
        self.0.schedule(tx, lease, not_before, at_least).await
    }

    async fn record(&self, tx: &mut B::Tx, events: &[AuditEvent]) -> Result<(), AuditError> {
        self.0.record(tx, events).await
    }

    async fn read_log(&self, tx: &mut B::Tx, saga: MessageId) -> Result<Vec<LogEntry>, Error> {
        self.0.read_log(tx, saga).await
    }

    async fn append_log(
        &self,
        tx: &mut B::Tx,
        saga: MessageId,
        after: usize,
        entry: &LogEntry,
    ) -> Result<(), Error> {
        self.0.append_log(tx, saga, after, entry).await
    }

    async fn forget_log(&self, tx: &mut B::Tx, saga: MessageId) -> Result<(), Error> {
        self.0.forget_log(tx, saga).await
    }
}
