//! Handlers that run in a transaction of the store's own database.
//!
//! The handler owns the transaction as a value, because a closure that borrows it across its awaits cannot be named. The
//! transaction returns when the handler drops it, and is committed only after the message was settled in it. A transaction that
//! does not return cannot be committed, so that counts as a failure.

use super::{
    Context, Failure, Next,
    handler::{Decode, Handle, HandlerOutcome},
};
use futures_util::future::BoxFuture;
use postrider_core::{Error, Lease, LeaseSettlement, TxBackend};
use std::{
    fmt,
    future::Future,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The transaction of a transactional handler. Writes and staged messages in it commit together with the settlement of the
/// message, or not at all. Use it like the driver's own transaction; do not commit it. It must be dropped before the handler
/// ends, which happens by itself.
pub struct Tx<T> {
    inner: Option<T>,
    return_slot: ReturnSlot<T>,
}

/// The slot to which a transaction returns when the handler drops it.
pub(crate) struct ReturnSlot<T>(Arc<Mutex<Option<T>>>);

impl<T> ReturnSlot<T> {
    /// The transaction, if the handler dropped it.
    pub(crate) fn take(&self) -> Option<T> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Tx<T> {
    pub(crate) fn lend(inner: T) -> (Self, ReturnSlot<T>) {
        let return_slot = Arc::new(Mutex::new(None));
        (
            Self { inner: Some(inner), return_slot: ReturnSlot(Arc::clone(&return_slot)) },
            ReturnSlot(return_slot),
        )
    }
}

#[expect(clippy::expect_used, reason = "the transaction is there until it is dropped")]
impl<T> Deref for Tx<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the transaction is there until it is dropped")
    }
}

#[expect(clippy::expect_used, reason = "the transaction is there until it is dropped")]
impl<T> DerefMut for Tx<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("the transaction is there until it is dropped")
    }
}

impl<T> Drop for Tx<T> {
    fn drop(&mut self) {
        *self.return_slot.lock() = self.inner.take();
    }
}

impl<T> fmt::Debug for Tx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

/// The delay after a transaction could not be begun.
const RESCHEDULE_AFTER: Duration = Duration::from_secs(1);

pub(super) struct Transactional<E, S, F> {
    pub(super) decode: Decode<E>,
    pub(super) store: S,
    pub(super) run: F,
}

impl<E, S, F, R, G> Handle for Transactional<E, S, F>
where
    E: Send + 'static,
    S: TxBackend,
    F: Fn(E, Tx<S::Tx>, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), G>> + Send + 'static,
    G: Into<Failure> + Send,
{
    fn handle(&self, context: Context, lease: &Lease) -> BoxFuture<'_, HandlerOutcome> {
        let done = lease.done();
        let event = match (self.decode)(context.message().payload()) {
            Ok(event) => event,
            Err(error) => return Box::pin(async { HandlerOutcome::Failed(Failure::undecodable(error)) }),
        };
        Box::pin(async move {
            match self.run_in_transaction(event, context, &done).await {
                Ok(handled) => handled,
                Err(error) => HandlerOutcome::Failed(Failure::retry(error)),
            }
        })
    }

    fn settles_itself(&self) -> bool {
        true
    }
}

impl<E, S: TxBackend, F> Transactional<E, S, F> {
    async fn run_in_transaction<R, G>(
        &self,
        event: E,
        context: Context,
        done: &LeaseSettlement,
    ) -> Result<HandlerOutcome, Error>
    where
        F: Fn(E, Tx<S::Tx>, Context) -> R,
        R: Future<Output = Result<(), G>>,
        G: Into<Failure>,
    {
        let tx = match self.store.begin().await {
            Ok(tx) => tx,
            Err(Error::Unavailable(error)) => {
                // The message was not attempted: an unavailable database must not consume its attempts.
                tracing::info!(
                    name: "postrider.rescheduled", %error,
                    "cannot begin a transaction: {error}; the message is rescheduled, no attempt counted"
                );
                return Ok(HandlerOutcome::Failed(Failure::snooze(RESCHEDULE_AFTER)));
            }
            Err(error) => return Err(error),
        };
        let (tx, return_slot) = Tx::lend(tx);
        let result = (self.run)(event, tx, context).await.map_err(Into::into);
        let returned = return_slot.take();
        match (result, returned) {
            (Ok(()), Some(mut tx)) => {
                if self.store.settle_in(&mut tx, done).await? {
                    self.store.commit(tx).await?;
                    return Ok(HandlerOutcome::Committed);
                }
                self.store.rollback(tx).await?;
                Ok(HandlerOutcome::Lost)
            }
            (Ok(()), None) => {
                let text = "the handler kept its transaction: drop the transaction before the handler ends";
                Ok(HandlerOutcome::Failed(Failure::of_kind(Next::Retry, "TransactionKept", text)))
            }
            (Err(failure), returned) => {
                if let Some(tx) = returned {
                    self.store.rollback(tx).await?;
                }
                Ok(HandlerOutcome::Failed(failure))
            }
        }
    }
}
