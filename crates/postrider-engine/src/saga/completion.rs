//! What happens when the last follow-up of a subject has landed.

use crate::{failure::Failure, worker::Tx};
use futures_util::future::BoxFuture;
use postrider_core::{EventType, Follow, Message, QueueName, SubjectId, TenantId, follow_up::Group};
use serde::Serialize;
use std::{fmt, sync::Arc};

/// Everything that was to be done for a subject has been done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Completed {
    /// The queue of its follow-ups.
    pub queue: QueueName,
    /// Whose subject it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The subject.
    pub subject: SubjectId,
    /// What was done.
    pub operation: EventType,
}

impl From<Group> for Completed {
    fn from(Group { queue, tenant, subject, operation }: Group) -> Self {
        Self { queue, tenant, subject, operation }
    }
}

type Callback<T> = dyn Fn(Tx<T>, Completed) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync;

/// What is to happen then, in the same transaction.
pub(super) struct OnComplete<S: Follow> {
    pub(super) callback: Option<Arc<Callback<S::Tx>>>,
    pub(super) to: Option<QueueName>,
}

/// The type of the message that tells of a completion.
const EVENT_TYPE: &str = "follow-ups.completed";

impl<S: Follow> OnComplete<S> {
    /// Lets it happen. Without an answer the transaction is gone.
    pub(super) async fn happen(&self, store: &S, tx: S::Tx, group: &Group) -> Result<S::Tx, Failure> {
        let completed = Completed::from(group.clone());
        let mut tx = match &self.callback {
            None => tx,
            Some(callback) => self.call(callback.as_ref(), store, tx, completed.clone()).await?,
        };
        if let Some(queue) = &self.to {
            let message = told(queue, &completed).map_err(Failure::retry)?;
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
        .event_type(EVENT_TYPE)
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
