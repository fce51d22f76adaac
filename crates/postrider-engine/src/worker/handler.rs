//! Handlers: typed outside, type-erased when they are registered.

use super::{Context, Failure};
use futures_util::future::BoxFuture;
use postrider_core::{Codec, CodecError, Event, Lease};
use serde::de::DeserializeOwned;
use std::future::Future;

/// A handler of any message type.
pub(super) trait Handle: Send + Sync + 'static {
    /// Runs the handler. A handler that [settles itself](Self::settles_itself) settles `lease`.
    fn handle(&self, context: Context, lease: &Lease) -> BoxFuture<'_, HandlerOutcome>;

    /// Whether the handler settles its message, in the transaction of its effects.
    fn settles_itself(&self) -> bool;
}

/// The outcome of a handler.
#[derive(Debug)]
pub(super) enum HandlerOutcome {
    /// It succeeded; the message is to be settled.
    Done,
    /// It succeeded, and the message was settled in its transaction.
    Committed,
    /// Its transaction was rolled back, because the lease was lost.
    Lost,
    /// It failed.
    Failed(Failure),
}

impl From<Result<(), Failure>> for HandlerOutcome {
    fn from(result: Result<(), Failure>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(failure) => Self::Failed(failure),
        }
    }
}

/// Decodes an event from a payload.
pub(crate) type Decode<E> = fn(&[u8]) -> Result<E, CodecError>;

/// Decodes an event with its own codec.
pub(crate) fn event<E: Event>() -> Decode<E> {
    <E::Codec as Codec<E>>::decode
}

/// Decodes any type from JSON.
pub(crate) fn json<E: DeserializeOwned>() -> Decode<E> {
    |payload| serde_json::from_slice(payload).map_err(CodecError::decode)
}

/// A handler of a typed event.
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
    fn handle(&self, context: Context, _: &Lease) -> BoxFuture<'_, HandlerOutcome> {
        let event = match (self.decode)(context.message().payload()) {
            Ok(event) => event,
            Err(error) => return Box::pin(async { HandlerOutcome::Failed(Failure::undecodable(error)) }),
        };
        let running = (self.run)(event, context);
        Box::pin(async { running.await.map_err(Into::into).into() })
    }

    fn settles_itself(&self) -> bool {
        false
    }
}

/// A handler that reads the payload itself.
pub(super) struct Plain<F>(pub(super) F);

impl<F, R, G> Handle for Plain<F>
where
    F: Fn(Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), G>> + Send + 'static,
    G: Into<Failure>,
{
    fn handle(&self, context: Context, _: &Lease) -> BoxFuture<'_, HandlerOutcome> {
        let running = (self.0)(context);
        Box::pin(async { running.await.map_err(Into::into).into() })
    }

    fn settles_itself(&self) -> bool {
        false
    }
}
