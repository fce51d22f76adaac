//! Transactions in which a claim is settled together with the handler's effects.

use crate::{Error, LeaseSettlement};
use std::future::Future;

/// Begins transactions in the store's own database, and settles claims in them: the handler's writes, the messages it stages and the
/// settlement commit together or not at all.
///
/// Not `dyn`, because a transaction has its driver's type.
pub trait Transactions: Clone + Send + Sync + 'static {
    /// The driver's transaction type.
    type Tx: Send + 'static;

    /// Begins a transaction.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx, Error>> + Send;

    /// Settles a lease in the transaction. Returns false when the lease was lost: roll back.
    fn settle_in(
        &self,
        tx: &mut Self::Tx,
        settle: &LeaseSettlement,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Commits. After an error the outcome is unknown; the lease token makes it safe to continue as if it had not committed.
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Rolls back.
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;
}
