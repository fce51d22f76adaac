//! The static seam to a database that receives: what a consumer needs of it besides admitting.

use crate::{Arrival, ConsumerName, Error, Inbox, Message, Reason, Store, transact::Transact, wake::Wake};
use std::future::Future;

/// Transactions in which messages are admitted, handled and, where that is of no use, parked.
pub trait Receive: Transact + Inbox<Self::Tx> {
    /// The store whose queues are in the same database.
    type Store: Store + Wake + Clone;

    /// The store itself.
    fn store(&self) -> Self::Store;

    /// Keeps messages as dead letters of their queues, in the transaction: from there an operator can look at them, and requeue or discard
    /// them. One whose identity its queue knows already stays as it is.
    fn park_all(
        &self,
        tx: &mut Self::Tx,
        parked: &[Parked],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Counts a delivery of each, at once and whatever becomes of any transaction, and answers for each, in the order of the batch, how
    /// often it was delivered, this time included. For brokers that do not count. A delivery that came to nothing is taken back with
    /// `by` -1.
    fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> impl Future<Output = Result<Vec<u32>, Error>> + Send;

    /// Forgets in the transaction how often these were delivered.
    fn uncount_all(
        &self,
        tx: &mut Self::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Answers if what was done in the transaction can still be committed. A handler may have swallowed an error of the database after
    /// which there is nothing left to commit, and drivers do not tell.
    fn verify(&self, tx: &mut Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A message that is not handled for now, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Parked {
    /// The message, with its identity, in the queue whose dead letter it becomes.
    pub message: Message,
    /// Why.
    pub reason: Reason,
    /// What failed.
    pub error: Option<String>,
    /// How often it was delivered.
    pub deliveries: u32,
}
