//! Staging in the caller's own transaction. Never `dyn`, because a transaction has its driver's type.

use crate::{Error, IntoMessage, Message, QueueName, StageReport, TimerName};
use std::future::Future;

/// Stages messages in a transaction of type `Tx` that belongs to the caller.
///
/// Staging happens on the caller's connection, in one statement where that is a round trip, whatever the number of messages
/// and queues; a call stages all of its messages or none. It never begins, commits or flushes: the messages exist if and
/// only if the caller's transaction commits.
pub trait Outbox<Tx> {
    /// Stages a batch of any size. An empty batch does nothing.
    fn stage_all(
        &self,
        tx: &mut Tx,
        messages: &[Message],
    ) -> impl Future<Output = Result<StageReport, Error>> + Send;

    /// Cancels a named timer, unless it is being delivered. Returns whether there was one to cancel.
    fn cancel_timer(
        &self,
        tx: &mut Tx,
        queue: &QueueName,
        timer: &TimerName,
    ) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// Convenience methods of every [`Outbox`].
pub trait OutboxExt<Tx: Send>: Outbox<Tx> + Sync {
    /// Stages one message: a typed event, a [`Message`] or its builder.
    fn stage<M: IntoMessage + Send>(
        &self,
        tx: &mut Tx,
        message: M,
    ) -> impl Future<Output = Result<StageReport, Error>> + Send {
        // Built before the future, so that the event need not be `Sync`.
        let message = message.into_message();
        async move { self.stage_all(tx, &[message?]).await }
    }
}

impl<Tx: Send, O: Outbox<Tx> + Sync> OutboxExt<Tx> for O {}
