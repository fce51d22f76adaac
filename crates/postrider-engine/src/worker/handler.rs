//! Handlers: typed outside, erased once when they are registered.

use super::{Context, Failure};
use futures_util::future::BoxFuture;
use postrider_core::{Codec, CodecError, Event};
use serde::de::DeserializeOwned;
use std::future::Future;

/// A handler of any type of message.
pub(super) trait Handle: Send + Sync + 'static {
    /// Runs it. What it is given must not be used after it ends.
    fn handle(&self, context: Context) -> BoxFuture<'_, Handled>;

    /// Whether it settles what it handles, in the transaction of its effects.
    fn commits(&self) -> bool;
}

/// How a handler ended.
#[derive(Debug)]
pub(super) enum Handled {
    /// It succeeded, and is to be settled.
    Done,
    /// It succeeded, and was settled in its transaction.
    Committed,
    /// Its transaction was undone, because the message belongs to somebody else.
    Lost,
    /// It failed.
    Failed(Failure),
}

impl From<Result<(), Failure>> for Handled {
    fn from(result: Result<(), Failure>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// How an event is made of a payload.
pub(crate) type Decode<E> = fn(&[u8]) -> Result<E, CodecError>;

/// Reads an event as its own codec writes it.
pub(crate) fn event<E: Event>() -> Decode<E> {
    <E::Codec as Codec<E>>::decode
}

/// Reads any type from JSON.
pub(crate) fn json<E: DeserializeOwned>() -> Decode<E> {
    |payload| serde_json::from_slice(payload).map_err(CodecError::decode)
}

/// A typed handler.
pub(super) struct Typed<E, F> {
    pub(super) decode: Decode<E>,
    pub(super) run: F,
}

impl<E, F, R, G> Handle for Typed<E, F>
where
    E: Send + 'static,
    F: Fn(E, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), G>> + Send + 'static,
    G: Into<Failure>,
{
    fn handle(&self, context: Context) -> BoxFuture<'_, Handled> {
        let event = match (self.decode)(context.message().payload()) {
            Ok(event) => event,
            Err(error) => return Box::pin(async { Handled::Failed(Failure::undecodable(error)) }),
        };
        let running = (self.run)(event, context);
        Box::pin(async { running.await.map_err(Into::into).into() })
    }

    fn commits(&self) -> bool {
        false
    }
}

/// A handler that reads the message itself.
pub(super) struct Plain<F>(pub(super) F);

impl<F, R, G> Handle for Plain<F>
where
    F: Fn(Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), G>> + Send + 'static,
    G: Into<Failure>,
{
    fn handle(&self, context: Context) -> BoxFuture<'_, Handled> {
        let running = (self.0)(context);
        Box::pin(async { running.await.map_err(Into::into).into() })
    }

    fn commits(&self) -> bool {
        false
    }
}
