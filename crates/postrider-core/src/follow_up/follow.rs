//! The static seam to a database in which follow-ups end.

use crate::{
    Audit, AuditSink, Error, EventType, FollowUps, Lease, Outbox, QueueName, Reason, Store, SubjectId,
    TenantId, inspect::Operate, saga::SagaLog, transact::Transact, wake::Wake,
};
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, SystemTime},
};

/// The follow-ups that belong together: when the last of them has landed, the subject is done with.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// The queue in which they wait.
    pub queue: QueueName,
    /// Whose subject it is.
    pub tenant: Option<TenantId>,
    /// Whom they are about.
    pub subject: SubjectId,
    /// What is to be done.
    pub operation: EventType,
}

/// What landing a follow-up left of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Landing {
    /// The claim was somebody else's. Nothing changed: roll back.
    Lost,
    /// It landed. Others of its group have not, or were given up.
    Open,
    /// It landed, and was the last of its group. Nobody else is told so, if the transaction commits.
    Last,
}

/// Transactions in which follow-ups end, each with what that calls for.
///
/// What has ended keeps no payload: it goes in the same transaction. Every call is guarded by the token of the claim.
///
/// **One order of locks.** Whoever lands a follow-up first takes the lock of its [`Group`], then ends the claim, then records in the
/// ledger. A transaction lands one follow-up. So two that land the last two of a group come one after the other, and the second sees
/// what the first has done; nobody waits for a lock while holding one that the other wants.
pub trait Follow: Transact + Outbox<Self::Tx> + Audit<Self::Tx> + SagaLog<Self::Tx> {
    /// The store whose queues are in the same database.
    type Store: Store + Wake + Operate + FollowUps + Clone;

    /// The store itself.
    fn store(&self) -> Self::Store;

    /// The ledger of the same database, for what is told outside of a transaction.
    fn ledger(&self) -> Arc<dyn AuditSink>;

    /// Ends a claim as delivered, and tells whether anything of its group is left in the same queue: pending, in somebody's hands,
    /// waiting, or given up.
    fn land(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        group: &Group,
    ) -> impl Future<Output = Result<Landing, Error>> + Send;

    /// Ends a claim for good: the follow-up becomes a dead letter. Answers whether the claim was still ours.
    fn abandon(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        reason: Reason,
        error: &str,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Puts a follow-up off until `not_before`, but for at least so long, by the store's clock, with its counters at zero. Answers until
    /// when, or with nothing if the claim was not ours.
    fn schedule(
        &self,
        tx: &mut Self::Tx,
        lease: &Lease,
        not_before: SystemTime,
        at_least: Duration,
    ) -> impl Future<Output = Result<Option<SystemTime>, Error>> + Send;
}
