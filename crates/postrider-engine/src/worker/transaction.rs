//! Handlers that run in a transaction of the store's own database.
//!
//! The handler is lent the transaction as a value of its own, because a closure that is lent a reference across its awaits cannot be
//! named. It comes back when the handler drops it, and is committed only after the claim was ended in it. A transaction
//! that does not come back cannot be committed, so it counts as a failure.

use super::{
    Context, Failure, Next,
    handler::{Decode, Handle, Handled},
};
use futures_util::future::BoxFuture;
use postrider_core::{Error, transact::Transact};
use std::{
    fmt,
    future::Future,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The transaction of a transactional handler. Whatever is written and staged in it commits together with the end of the
/// message, or not at all. Use it like the driver's own; do not commit it, and drop it before the handler ends, which happens
/// by itself.
pub struct Tx<T> {
    inner: Option<T>,
    home: Home<T>,
}

/// Where a lent transaction comes back to.
pub(crate) struct Home<T>(Arc<Mutex<Option<T>>>);

impl<T> Home<T> {
    /// The transaction, if it has come back.
    pub(crate) fn take(&self) -> Option<T> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Tx<T> {
    pub(crate) fn lend(inner: T) -> (Self, Home<T>) {
        let home = Arc::new(Mutex::new(None));
        (Self { inner: Some(inner), home: Home(Arc::clone(&home)) }, Home(home))
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
        *self.home.lock() = self.inner.take();
    }
}

impl<T> fmt::Debug for Tx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

/// When to try again after no transaction could be begun.
const AWAY_FOR: Duration = Duration::from_secs(1);

pub(super) struct Transactional<E, S, F> {
    pub(super) decode: Decode<E>,
    pub(super) store: S,
    pub(super) run: F,
}

impl<E, S, F, R, G> Handle for Transactional<E, S, F>
where
    E: Send + 'static,
    S: Transact,
    F: Fn(E, Tx<S::Tx>, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), G>> + Send + 'static,
    G: Into<Failure> + Send,
{
    fn handle(&self, context: Context) -> BoxFuture<'_, Handled> {
        let event = match (self.decode)(context.message().payload()) {
            Ok(event) => event,
            Err(error) => return Box::pin(async { Handled::Failed(Failure::undecodable(error)) }),
        };
        Box::pin(async move {
            match self.run_in_transaction(event, context).await {
                Ok(handled) => handled,
                Err(error) => Handled::Failed(Failure::retry(error)),
            }
        })
    }

    fn commits(&self) -> bool {
        true
    }
}

impl<E, S: Transact, F> Transactional<E, S, F> {
    async fn run_in_transaction<R, G>(&self, event: E, context: Context) -> Result<Handled, Error>
    where
        F: Fn(E, Tx<S::Tx>, Context) -> R,
        R: Future<Output = Result<(), G>>,
        G: Into<Failure>,
    {
        let end = context.lease().done();
        let begun = match self.store.begin().await {
            Ok(begun) => begun,
            Err(Error::Unavailable(error)) => {
                // Nothing of the message was tried: a database that is away must not use up its attempts.
                tracing::info!(name: "postrider.put_off", %error, "no transaction could be begun; put off");
                return Ok(Handled::Failed(Failure::snooze(AWAY_FOR)));
            }
            Err(error) => return Err(error),
        };
        let (tx, home) = Tx::lend(begun);
        let result = (self.run)(event, tx, context).await.map_err(Into::into);
        let returned = home.take();
        match (result, returned) {
            (Ok(()), Some(mut tx)) => {
                if self.store.settle_in(&mut tx, &end).await? {
                    self.store.commit(tx).await?;
                    return Ok(Handled::Committed);
                }
                self.store.rollback(tx).await?;
                Ok(Handled::Lost)
            }
            (Ok(()), None) => {
                let text = "the handler kept its transaction: drop it before the handler ends";
                Ok(Handled::Failed(Failure::of_kind(Next::Retry, "TransactionKept", text)))
            }
            (Err(failure), returned) => {
                if let Some(tx) = returned {
                    self.store.rollback(tx).await?;
                }
                Ok(Handled::Failed(failure))
            }
        }
    }
}
