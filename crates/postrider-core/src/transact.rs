//! The static seam to transactions in which a claim ends together with its effects.

use crate::{Error, Settle};
use std::future::Future;

/// Begins transactions in the store's own database, and ends claims in them: what a handler writes, what it stages in turn and
/// the end of the claim happen together, once, or not at all.
///
/// Not `dyn`, because a transaction has its driver's type.
pub trait Transact: Clone + Send + Sync + 'static {
    /// The transaction, as the driver has it.
    type Tx: Send + 'static;

    /// Begins one.
    fn begin(&self) -> impl Future<Output = Result<Self::Tx, Error>> + Send;

    /// Ends a claim in it. Answers whether the claim was still ours: if not, roll back.
    fn settle_in(
        &self,
        tx: &mut Self::Tx,
        settle: &Settle,
    ) -> impl Future<Output = Result<bool, Error>> + Send;

    /// Commits it. After an error nobody knows whether it committed; the claim's token makes it safe to go on as if it had not.
    fn commit(&self, tx: Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;

    /// Rolls it back.
    fn rollback(&self, tx: Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;
}
