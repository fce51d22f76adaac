//! What happens when the last follow-up of a subject has landed.

use crate::{failure::Failure, worker::Tx};
use futures_util::future::BoxFuture;
use postrider_core::{
    EventType, Follow, Message, MessageId, QueueName, SubjectId, TenantId, follow_up::Group,
};
use serde::Serialize;
use std::{fmt, sync::Arc};

/// What was to be done for a subject has come to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Completed {
    /// How.
    pub ended: Ended,
    /// The saga, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saga: Option<MessageId>,
    /// The queue of its follow-ups.
    pub queue: QueueName,
    /// Whose subject it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The subject.
    pub subject: SubjectId,
    /// What was done; of a saga, the name of its plan.
    pub operation: EventType,
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Everything was done.
    Completed,
    /// A step of the saga failed, and what had been done was undone.
    Compensated,
}

impl From<Group> for Completed {
    fn from(Group { queue, tenant, subject, operation }: Group) -> Self {
        Self { ended: Ended::Completed, saga: None, queue, tenant, subject, operation }
    }
}

type Callback<T> = dyn Fn(Tx<T>, Completed) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync;

/// What is to happen then, in the same transaction.
pub(super) struct OnComplete<S: Follow> {
    pub(super) callback: Option<Arc<Callback<S::Tx>>>,
    pub(super) to: Option<QueueName>,
}

impl Ended {
    /// The type of the message that tells of it.
    const fn event_type(self) -> &'static str {
        match self {
            Self::Completed => "follow-ups.completed",
            Self::Compensated => "follow-ups.compensated",
        }
    }
}

impl<S: Follow> OnComplete<S> {
    /// Lets it happen. Without an answer the transaction is gone.
    pub(super) async fn happen(&self, store: &S, tx: S::Tx, completed: &Completed) -> Result<S::Tx, Failure> {
        let mut tx = match &self.callback {
            None => tx,
            Some(callback) => self.call(callback.as_ref(), store, tx, completed.clone()).await?,
        };
        if let Some(queue) = &self.to {
            let message = told(queue, completed).map_err(Failure::retry)?;
            store.stage_all(&mut tx, &[message]).await?;
        }
        Ok(tx)
    }

    async fn call(
        &self,
        callback: &Callback<S::Tx>,
        store: &S,
        tx: S::Tx,
        completed: Completed,
    ) -> Result<S::Tx, Failure> {
        let (lent, home) = Tx::lend(tx);
        let answer = callback(lent, completed).await;
        match (answer, home.take()) {
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

fn told(queue: &QueueName, completed: &Completed) -> Result<Message, postrider_core::Invalid> {
    let mut builder = Message::builder(queue.as_str())
        .event_type(completed.ended.event_type())
        .subject(completed.subject.as_str())
        .json(completed);
    if let Some(tenant) = &completed.tenant {
        builder = builder.tenant(tenant.as_str());
    }
    builder.build()
}

impl<S: Follow> Clone for OnComplete<S> {
    fn clone(&self) -> Self {
        Self { callback: self.callback.clone(), to: self.to.clone() }
    }
}

impl<S: Follow> fmt::Debug for OnComplete<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnComplete").field("to", &self.to).finish_non_exhaustive()
    }
}
