//! The transactions of a backend: what handlers, consumers and saga runners do together, or not at all.

use crate::{
    Admission, Arrival, AuditError, AuditEvent, AuditSink, Backend, ConsumerName, Error, Inbox, Lease,
    LeaseSettlement, Message, MessageId, Outbox, QueueName, Reason, StageReport, TimerName,
    follow_up::{FollowUpGroup, GroupProgress},
    saga::LogEntry,
};
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// Transactions in a backend's own database: the writes of a handler, the messages it stages, its settlement or deduplication record,
/// audit events and saga log commit together or not at all.
///
/// Not `dyn`, because a transaction has its driver's type. Every `TxBackend` is an [`Outbox`] and an [`Inbox`] of its transactions.
///
/// **One lock order.** A transaction that finishes a follow-up first locks its [`FollowUpGroup`], then settles the lease, then appends
/// to the ledger. A transaction finishes one follow-up. So two transactions that finish the last two of a group run one after the
/// other, the second sees the effect of the first, and no deadlock is possible.
pub trait TxBackend: Clone + Send + Sync + 'static {
    /// The driver's transaction type.
    type Tx: Send + 'static;
    /// The backend in whose database the transactions run.
    type Backend: Backend + Clone;

    /// The backend.
    fn backend(&self) -> Self::Backend;

    /// The ledger of the same database, for events outside of a transaction.
    fn ledger(&self) -> Arc<dyn AuditSink>;

    /// Begins a transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx, Error>> + Send;

    /// Checks that the transaction can still be committed. A handler may have ignored a database error that aborted the transaction, and
    /// drivers do not report that.
    fn verify(&self, tx: &mut Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Commits. After an error the outcome is unknown; the lease token makes it safe to continue as if it had not committed.
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Rolls back.
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Stages a batch, as [`Outbox::stage_all`].
    fn stage_in(
        &self,
        tx: &mut Self::Tx,
        messages: &[Message],
    ) -> impl Future<Output = Result<StageReport, Error>> + Send;

    /// Cancels a named timer, as [`Outbox::cancel_timer`].
    fn cancel_timer_in(
        &self,
        tx: &mut Self::Tx,
        queue: &QueueName,
        timer: &TimerName,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Settles a lease in the transaction. Returns false when the lease was lost: roll back.
    fn settle_in(
        &self,
        tx: &mut Self::Tx,
        settle: &LeaseSettlement,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Admits a batch, as [`Inbox::admit_all`].
    fn admit_in(
        &self,
        tx: &mut Self::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> impl Future<Output = Result<Vec<Admission>, Error>> + Send;

    /// Counts a delivery of each message, outside of any transaction, and returns for each, in the order of the batch, the number of
    /// deliveries including this one. For brokers that do not count. `by` -1 takes back a delivery that was not handled.
    fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> impl Future<Output = Result<Vec<u32>, Error>> + Send;

    /// Deletes the delivery counts of these messages.
    fn uncount_all(
        &self,
        tx: &mut Self::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Stores messages as dead letters of their queues. An operator can inspect, requeue or discard them. A message whose id its queue
    /// already has stays unchanged.
    fn dead_letter_all(
        &self,
        tx: &mut Self::Tx,
        dead_letters: &[DeadLetter],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Settles a follow-up as delivered, deletes its payload, and returns whether its group has unfinished follow-ups in the same
    /// queue: pending, leased, scheduled or abandoned.
    fn land(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        group: &FollowUpGroup,
    ) -> impl Future<Output = Result<GroupProgress, Error>> + Send;

    /// Abandons a follow-up: it becomes a dead letter without a payload. Returns false when the lease was lost.
    fn abandon(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Reschedules a follow-up to `not_before`, but by at least `at_least`, by the store's clock, with its counters reset. Returns the
    /// due time, or `None` when the lease was lost.
    fn schedule(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> impl Future<Output = Result<Option<SystemTime>, Error>> + Send;

    /// Appends events to the ledger of the same database, in order. Appending locks the ledger until the transaction ends: do it last.
    fn record(
        &self,
        tx: &mut Self::Tx,
        events: &[AuditEvent],
    ) -> impl Future<Output = Result<(), AuditError>> + Send;

    /// The log of a saga, oldest first. Reading locks the saga until the transaction ends. A log exists while its saga runs; the
    /// outcome is in the ledger.
    fn read_log(
        &self,
        tx: &mut Self::Tx,
        saga: MessageId,
    ) -> impl Future<Output = Result<Vec<LogEntry>, Error>> + Send;

    /// Appends an entry to a log that was read in the same transaction and had `after` entries.
    fn append_log(
        &self,
        tx: &mut Self::Tx,
        saga: MessageId,
        after: usize,
        entry: &LogEntry,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Deletes the log of a finished saga.
    fn forget_log(
        &self,
        tx: &mut Self::Tx,
        saga: MessageId,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

impl<B: TxBackend> Outbox<B::Tx> for B {
    fn stage_all(
        &self,
        tx: &mut B::Tx,
        messages: &[Message],
    ) -> impl Future<Output = Result<StageReport, Error>> + Send {
        self.stage_in(tx, messages)
    }

    fn cancel_timer(
        &self,
        tx: &mut B::Tx,
        queue: &QueueName,
        timer: &TimerName,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        self.cancel_timer_in(tx, queue, timer)
    }
}

impl<B: TxBackend> Inbox<B::Tx> for B {
    fn admit_all(
        &self,
        tx: &mut B::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> impl Future<Output = Result<Vec<Admission>, Error>> + Send {
        self.admit_in(tx, consumer, arrivals)
    }
}

/// A message that a consumer could not handle, and the reason.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// The message with its id, in the queue whose dead letter it becomes.
    pub message: Message,
    /// The reason.
    pub reason: Reason,
    /// The error.
    pub error: Option<String>,
    /// The number of deliveries.
    pub deliveries: u32,
}
