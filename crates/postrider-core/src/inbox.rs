//! The inbox: deduplication of received messages, so that each has its effects exactly once however often it is delivered.
//!
//! A message is *admitted* in the transaction of its effects. The deduplication record and the effects commit together or not at all:
//! a message whose handler failed leaves no record and is handled when it is redelivered, and a message whose effects are committed is
//! a duplicate for as long as records are kept.
//!
//! **The deduplication record is authoritative**, not the broker. When two transactions admit the same message at the same time, the
//! second waits for the first: it is the duplicate if the first commits, and the first if that one rolls back.
//!
//! **The scope of a record** is a tenant, a consumer and a message id. Consumers do not see each other's records, and neither do
//! tenants. The ordering key is not part of it: many messages share a key.

use crate::{ConsumerName, Error, MessageId, TenantId};
use std::future::Future;

/// Admits messages in a transaction of type `Tx` that belongs to the caller. Like [`Outbox`](crate::Outbox), it never begins or
/// commits one.
pub trait Inbox<Tx> {
    /// Admits a batch of any size in one round trip, and returns the admission of each message in the order of the batch. A message
    /// that occurs twice in the batch is a duplicate the second time. An empty batch does nothing.
    fn admit_all(
        &self,
        tx: &mut Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> impl Future<Output = Result<Vec<Admission>, Error>> + Send;
}

/// The identity by which a received message is deduplicated.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arrival {
    /// The tenant, if any.
    pub tenant: Option<TenantId>,
    /// The message id.
    pub id: MessageId,
}

impl Arrival {
    /// A message without a tenant.
    pub const fn new(id: MessageId) -> Self {
        Self { tenant: None, id }
    }

    /// Sets the tenant.
    #[must_use]
    pub fn of_tenant(mut self, tenant: TenantId) -> Self {
        self.tenant = Some(tenant);
        self
    }
}

/// Whether a message is new or a duplicate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admission {
    /// New. Its deduplication record commits with the transaction.
    First,
    /// A duplicate: its effects are committed. Ack it, and do nothing.
    Duplicate,
}

impl Admission {
    /// Whether it is new.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First)
    }
}

/// Convenience methods of every [`Inbox`].
pub trait InboxExt<Tx: Send>: Inbox<Tx> + Sync {
    /// Admits one message.
    fn admit(
        &self,
        tx: &mut Tx,
        consumer: &ConsumerName,
        arrival: Arrival,
    ) -> impl Future<Output = Result<Admission, Error>> + Send {
        async move {
            let admitted = self.admit_all(tx, consumer, &[arrival]).await?;
            // One answer for each; without one nothing may be done twice.
            Ok(admitted.first().copied().unwrap_or(Admission::Duplicate))
        }
    }

    /// Admits one message, and runs `effect` if it is new: for a receive loop of your own. On `Ok` commit the transaction and then ack
    /// the message, new or not; on an error roll back.
    ///
    /// # Errors
    /// The error of the effect or of the inbox.
    fn once<T, E: From<Error>>(
        &self,
        tx: &mut Tx,
        consumer: &ConsumerName,
        arrival: Arrival,
        effect: impl AsyncFnOnce(&mut Tx) -> Result<T, E>,
    ) -> impl Future<Output = Result<Option<T>, E>> {
        async move {
            match self.admit(tx, consumer, arrival).await? {
                Admission::First => effect(tx).await.map(Some),
                Admission::Duplicate => Ok(None),
            }
        }
    }
}

impl<Tx: Send, I: Inbox<Tx> + Sync> InboxExt<Tx> for I {}
