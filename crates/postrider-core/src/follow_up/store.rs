//! The database of a saga runner: transactions in which follow-ups end.

use crate::{
    Audit, AuditSink, Error, EventType, FollowUps, Lease, Outbox, QueueName, Reason, Store, SubjectId,
    TenantId, inspect::Operate, notifier::Notifier, saga::SagaLog, transactions::Transactions,
};
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The follow-ups of one subject and operation: when the last of them succeeds, the group is complete.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FollowUpGroup {
    /// The queue.
    pub queue: QueueName,
    /// The tenant of the subject.
    pub tenant: Option<TenantId>,
    /// The subject.
    pub subject: SubjectId,
    /// The operation.
    pub operation: EventType,
}

/// The progress of a group after a follow-up has succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupProgress {
    /// The lease was lost. Nothing changed: roll back.
    Lost,
    /// The follow-up succeeded; others of its group are unfinished or abandoned.
    Open,
    /// The follow-up succeeded and completed its group. No other transaction gets this result, if this one commits.
    Last,
}

/// Transactions in which follow-ups end, together with their audit events and saga log.
///
/// A finished follow-up keeps no payload: the same transaction deletes it. The lease token guards every call.
///
/// **One lock order.** A transaction that finishes a follow-up first locks its [`FollowUpGroup`], then settles the lease, then appends
/// to the ledger. A transaction finishes one follow-up. So two transactions that finish the last two of a group run one after the
/// other, the second sees the effect of the first, and no deadlock is possible.
pub trait FollowUpStore: Transactions + Outbox<Self::Tx> + Audit<Self::Tx> + SagaLog<Self::Tx> {
    /// The store whose queues are in the same database.
    type Store: Store + Notifier + Operate + FollowUps + Clone;

    /// The store itself.
    fn store(&self) -> Self::Store;

    /// The ledger of the same database, for events outside of a transaction.
    fn ledger(&self) -> Arc<dyn AuditSink>;

    /// Settles a lease as delivered, and returns whether its group has unfinished follow-ups in the same queue: pending, leased,
    /// scheduled or abandoned.
    fn land(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        group: &FollowUpGroup,
    ) -> impl Future<Output = Result<GroupProgress, Error>> + Send;

    /// Abandons a follow-up: it becomes a dead letter. Returns false when the lease was lost.
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
}
