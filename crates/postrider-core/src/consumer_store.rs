//! The database of a consumer: transactions, inbox, delivery counts and dead letters.

use crate::{
    Arrival, ConsumerName, Error, Inbox, Message, Reason, Store, notifier::Notifier,
    transactions::Transactions,
};
use std::future::Future;

/// Transactions in which a consumer admits and handles messages, or dead-letters them.
pub trait ConsumerStore: Transactions + Inbox<Self::Tx> {
    /// The store whose queues are in the same database.
    type Store: Store + Notifier + Clone;

    /// The store itself.
    fn store(&self) -> Self::Store;

    /// Stores messages as dead letters of their queues, in the transaction. An operator can inspect, requeue or discard them. A message
    /// whose id its queue already has stays unchanged.
    fn dead_letter_all(
        &self,
        tx: &mut Self::Tx,
        dead_letters: &[DeadLetter],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Counts a delivery of each message, outside of any transaction, and returns for each, in the order of the batch, the number of
    /// deliveries including this one. For brokers that do not count. `by` -1 takes back a delivery that was not handled.
    fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> impl Future<Output = Result<Vec<u32>, Error>> + Send;

    /// Deletes the delivery counts of these messages, in the transaction.
    fn uncount_all(
        &self,
        tx: &mut Self::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Checks that the transaction can still be committed. A handler may have ignored a database error that aborted the transaction, and
    /// drivers do not report that.
    fn verify(&self, tx: &mut Self::Tx) -> impl Future<Output = Result<(), Error>> + Send;
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
