//! Completion: the last follow-up of a subject has succeeded, or a saga has ended.

use crate::{
    failure::{Failure, Next},
    worker::Tx,
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_core::{
    EventType, Message, MessageId, QueueName, SubjectId, TenantId, TxBackend, follow_up::FollowUpGroup,
};
use serde::Serialize;
use std::{fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::timeout;

/// The completion of an operation for a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Completion {
    /// The outcome.
    pub ended: CompletionOutcome,
    /// The saga, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saga: Option<MessageId>,
    /// The queue of its follow-ups.
    pub queue: QueueName,
    /// The tenant of the subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The subject.
    pub subject: SubjectId,
    /// The operation; for a saga the name of its plan.
    pub operation: EventType,
}

/// The outcome of a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CompletionOutcome {
    /// All calls succeeded.
    Completed,
    /// A step of the saga failed, and the steps before it were compensated.
    Compensated,
}

impl From<FollowUpGroup> for Completion {
    fn from(FollowUpGroup { queue, tenant, subject, operation }: FollowUpGroup) -> Self {
        Self { ended: CompletionOutcome::Completed, saga: None, queue, tenant, subject, operation }
    }
}

type Callback<T> = dyn Fn(Tx<T>, Completion) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync;

/// The callback and the queue of a completion, both in the same transaction.
pub(super) struct OnComplete<S: TxBackend> {
    pub(super) callback: Option<Arc<Callback<S::Tx>>>,
    pub(super) to: Option<QueueName>,
    /// The timeout of the callback: it holds the locks of the transaction.
    pub(super) timeout: Duration,
}

impl CompletionOutcome {
    /// The type of the completion message.
    const fn event_type(self) -> &'static str {
        match self {
            Self::Completed => "follow-ups.completed",
            Self::Compensated => "follow-ups.compensated",
        }
    }
}

impl<S: TxBackend> OnComplete<S> {
    /// Runs the callback and stages the completion message. After an error the transaction is gone.
    pub(super) async fn run(&self, store: &S, tx: S::Tx, completion: &Completion) -> Result<S::Tx, Failure> {
        let mut tx = match &self.callback {
            None => tx,
            Some(callback) => self.call(callback.as_ref(), store, tx, completion.clone()).await?,
        };
        if let Some(queue) = &self.to {
            let message = completion_message(queue, completion).map_err(Failure::retry)?;
            store.stage_in(&mut tx, &[message]).await?;
        }
        Ok(tx)
    }

    async fn call(
        &self,
        callback: &Callback<S::Tx>,
        store: &S,
        tx: S::Tx,
        completion: Completion,
    ) -> Result<S::Tx, Failure> {
        let (tx, return_slot) = Tx::lend(tx);
        let calling = AssertUnwindSafe(async { callback(tx, completion).await }).catch_unwind();
        let result = match timeout(self.timeout, calling).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Failure::of_kind(Next::Retry, "Panic", "`on_complete` panicked")),
            Err(_) => Err(Failure::of_kind(Next::Retry, "Timeout", "`on_complete` exceeded its timeout")),
        };
        match (result, return_slot.take()) {
            (Ok(()), Some(tx)) => Ok(tx),
            (Ok(()), None) => {
                Err(Failure::retry("drop the transaction before the callback ends").named("TransactionKept"))
            }
            (Err(failure), tx) => {
                if let Some(tx) = tx {
                    store.rollback(tx).await?;
                }
                Err(failure)
            }
        }
    }
}

fn completion_message(
    queue: &QueueName,
    completion: &Completion,
) -> Result<Message, postrider_core::Invalid> {
    let mut builder = Message::builder(queue.as_str())
        .event_type(completion.ended.event_type())
        .subject(completion.subject.as_str())
        .json(completion);
    if let Some(tenant) = &completion.tenant {
        builder = builder.tenant(tenant.as_str());
    }
    builder.build()
}

impl<S: TxBackend> Clone for OnComplete<S> {
    fn clone(&self) -> Self {
        Self { callback: self.callback.clone(), to: self.to.clone(), timeout: self.timeout }
    }
}

impl<S: TxBackend> fmt::Debug for OnComplete<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnComplete").field("to", &self.to).finish_non_exhaustive()
    }
}
