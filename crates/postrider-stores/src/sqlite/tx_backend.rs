//! What runners do in a transaction of SQLite, duty by duty: each has a module of its own.

use super::{SqliteStore, SqliteTransactions, error::store_error};
use postrider_core::{
    Admission, Arrival, AuditError, AuditEvent, AuditSink, ConsumerName, DeadLetter, Error, Inbox as _,
    Lease, LeaseSettlement, Message, MessageId, Outbox as _, QueueName, Reason, StageReport, TimerName,
    TxBackend,
    follow_up::{FollowUpGroup, GroupProgress},
    saga::LogEntry,
};
use sqlx::{Sqlite, Transaction};
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

impl TxBackend for SqliteTransactions {
    type Tx = Transaction<'static, Sqlite>;
    type Backend = SqliteStore;

    fn backend(&self) -> SqliteStore {
        self.store.clone()
    }

    fn ledger(&self) -> Arc<dyn AuditSink> {
        Arc::new(self.store.ledger())
    }

    async fn begin(&self) -> Result<Self::Tx, Error> {
        self.begin_immediate().await
    }

    async fn verify(&self, tx: &mut Self::Tx) -> Result<(), Error> {
        Self::verify(self, tx).await
    }

    async fn commit(&self, tx: Self::Tx) -> Result<(), Error> {
        tx.commit().await.map_err(store_error)
    }

    async fn rollback(&self, tx: Self::Tx) -> Result<(), Error> {
        self.roll_back(tx).await
    }

    async fn stage_in(&self, tx: &mut Self::Tx, messages: &[Message]) -> Result<StageReport, Error> {
        self.store.outbox().stage_all(tx, messages).await
    }

    async fn cancel_timer_in(
        &self,
        tx: &mut Self::Tx,
        queue: &QueueName,
        timer: &TimerName,
    ) -> Result<bool, Error> {
        self.store.outbox().cancel_timer(tx, queue, timer).await
    }

    async fn settle_in(&self, tx: &mut Self::Tx, settle: &LeaseSettlement) -> Result<bool, Error> {
        // Outside of its transaction a settlement would be permanent, and the effects would be lost.
        self.verify(tx).await?;
        Self::settle_in(self, tx, settle).await
    }

    async fn admit_in(
        &self,
        tx: &mut Self::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        self.store.inbox().admit_all(tx, consumer, arrivals).await
    }

    async fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        Self::count_all(self, consumer, arrivals, by).await
    }

    async fn uncount_all(
        &self,
        tx: &mut Self::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<(), Error> {
        Self::uncount_all(self, tx, consumer, arrivals).await
    }

    async fn dead_letter_all(&self, tx: &mut Self::Tx, dead_letters: &[DeadLetter]) -> Result<(), Error> {
        Self::dead_letter_all(self, tx, dead_letters).await
    }

    async fn land(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        group: &FollowUpGroup,
    ) -> Result<GroupProgress, Error> {
        Self::land(self, tx, lease, group).await
    }

    async fn abandon(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> Result<bool, Error> {
        Self::abandon(self, tx, lease, reason, error).await
    }

    async fn schedule(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> Result<Option<SystemTime>, Error> {
        Self::schedule(self, tx, lease, not_before, at_least).await
    }

    async fn record(&self, tx: &mut Self::Tx, events: &[AuditEvent]) -> Result<(), AuditError> {
        Self::record(self, tx, events).await
    }

    async fn read_log(&self, tx: &mut Self::Tx, saga: MessageId) -> Result<Vec<LogEntry>, Error> {
        Self::read_log(self, tx, saga).await
    }

    async fn append_log(
        &self,
        tx: &mut Self::Tx,
        saga: MessageId,
        after: usize,
        entry: &LogEntry,
    ) -> Result<(), Error> {
        Self::append_log(self, tx, saga, after, entry).await
    }

    async fn forget_log(&self, tx: &mut Self::Tx, saga: MessageId) -> Result<(), Error> {
        Self::forget_log(self, tx, saga).await
    }
}
