//! The static seam to what has been received before: one effect for each message, however often it arrives.
//!
//! A message is *admitted* in the transaction of its effects. The mark and the effects commit together or not at all, so that a
//! message whose handler failed leaves no mark and is new when it comes again, and one whose effects are there is a duplicate for
//! ever, or for as long as marks are kept.
//!
//! **Who is authoritative.** The mark, and nothing that a broker says. Where two transactions admit the same message at one
//! moment, the second waits for the first: it is the duplicate if that one commits, and the first if it does not.
//!
//! **What is told apart.** A mark belongs to a tenant, a consumer and a message's identity. Consumers do not see each other's
//! marks, and neither do tenants. The ordering key is no part of it: many messages have the same.

use crate::{ConsumerName, Error, MessageId, TenantId};
use std::future::Future;

/// Admits messages in a transaction of type `Tx` that belongs to the caller. Like [`Outbox`](crate::Outbox), it never begins or
/// commits one.
pub trait Inbox<Tx> {
    /// Admits a batch of any size in one statement where that is a round trip, and answers for each in the order of the batch.
    /// What is there twice in one batch is a duplicate the second time. An empty batch does nothing.
    fn admit_all(
        &self,
        tx: &mut Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> impl Future<Output = Result<Vec<Admission>, Error>> + Send;
}

/// A message that has arrived, by what tells it apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arrival {
    /// Whose it is.
    pub tenant: Option<TenantId>,
    /// Its identity.
    pub id: MessageId,
}

impl Arrival {
    /// A message that belongs to no tenant.
    pub const fn new(id: MessageId) -> Self {
        Self { tenant: None, id }
    }

    /// It belongs to this tenant.
    #[must_use]
    pub fn of_tenant(mut self, tenant: TenantId) -> Self {
        self.tenant = Some(tenant);
        self
    }
}

/// Whether a message has arrived before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Admission {
    /// It is new. It is marked as received if the transaction commits.
    First,
    /// Its effects are there already: acknowledge it, and do nothing.
    Duplicate,
}

impl Admission {
    /// Whether it is new.
    pub const fn is_first(self) -> bool {
        matches!(self, Self::First)
    }
}

/// What every [`Inbox`] can do besides.
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

    /// Admits one message, and does what it calls for if it is new: for loops of one's own. Commit the transaction if it answers, and
    /// acknowledge the message then, whether it was new or not; roll back if it fails.
    ///
    /// # Errors
    /// What the effect failed with, or the inbox.
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
