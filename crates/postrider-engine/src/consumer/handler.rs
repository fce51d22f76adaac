//! Handlers that run in the transaction in which their message is admitted: typed outside, type-erased when they are
//! registered.

use crate::{
    failure::{Failure, Next},
    worker::{Context, OnUnknownType, Tx, deliver::panic_text, handler::Decode},
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_core::Message;
use std::{collections::BTreeMap, fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};

/// A handler of any message type.
pub(super) trait Handle<T>: Send + Sync + 'static {
    fn handle(&self, tx: Tx<T>, context: Context) -> BoxFuture<'_, Result<(), Failure>>;
}

/// A shared handler.
pub(super) type Handler<T> = Arc<dyn Handle<T>>;

/// A handler of a typed event.
pub(super) struct Typed<E, F> {
    pub(super) decode: Decode<E>,
    pub(super) run: F,
}

impl<T, E, F, R, G> Handle<T> for Typed<E, F>
where
    E: Send + 'static,
    F: Fn(E, Tx<T>, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), G>> + Send + 'static,
    G: Into<Failure>,
{
    fn handle(&self, tx: Tx<T>, context: Context) -> BoxFuture<'_, Result<(), Failure>> {
        let event = match (self.decode)(context.message().payload()) {
            Ok(event) => event,
            Err(error) => return Box::pin(async { Err(Failure::undecodable(error)) }),
        };
        let running = (self.run)(event, tx, context);
        Box::pin(async { running.await.map_err(Into::into) })
    }
}

/// A handler that reads the payload itself.
pub(super) struct Plain<F>(pub(super) F);

impl<T, F, R, G> Handle<T> for Plain<F>
where
    F: Fn(Tx<T>, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Result<(), G>> + Send + 'static,
    G: Into<Failure>,
{
    fn handle(&self, tx: Tx<T>, context: Context) -> BoxFuture<'_, Result<(), Failure>> {
        let running = (self.0)(tx, context);
        Box::pin(async { running.await.map_err(Into::into) })
    }
}

/// All handlers of a consumer.
pub(super) struct Handlers<T> {
    pub(super) typed: BTreeMap<&'static str, Handler<T>>,
    pub(super) fallback: Option<Handler<T>>,
    pub(super) unknown: OnUnknownType,
    pub(super) timeout: Duration,
}

impl<T: Send + 'static> Handlers<T> {
    /// Runs the handler of a message. Returns the transaction if the handler dropped it.
    pub(super) async fn run(
        &self,
        tx: T,
        context: impl FnOnce(Instant) -> Context,
    ) -> (Option<T>, Result<(), Failure>) {
        let deadline = Instant::now() + self.timeout;
        let context = context(deadline);
        let Some(handler) = self.of(context.message()) else {
            return (Some(tx), self.unknown(context.message()));
        };
        let (tx, return_slot) = Tx::lend(tx);
        // A handler may panic before it returns its future, and while that runs. Its shared state is its own
        // responsibility.
        let running = AssertUnwindSafe(async { handler.handle(tx, context).await }).catch_unwind();
        let result = match timeout_at(deadline, running).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(Failure::of_kind(Next::Retry, "Panic", panic_text(panic.as_ref()))),
            Err(_) => {
                let text = format!("the handler exceeded its timeout of {:?}", self.timeout);
                Err(Failure::of_kind(Next::Retry, "Timeout", text))
            }
        };
        let returned = return_slot.take();
        match result {
            Ok(()) if returned.is_none() => {
                let text = "the handler kept its transaction: drop the transaction before the handler ends";
                (None, Err(Failure::of_kind(Next::Retry, "TransactionKept", text)))
            }
            result => (returned, result),
        }
    }

    fn of(&self, message: &Message) -> Option<&Handler<T>> {
        let typed = message.event_type().and_then(|event_type| self.typed.get(event_type.as_str()));
        typed.or(self.fallback.as_ref())
    }

    fn unknown(&self, message: &Message) -> Result<(), Failure> {
        let text = match message.event_type() {
            Some(event_type) => format!("no handler for events of type {event_type}"),
            None => "no handler for messages without a type".to_owned(),
        };
        match self.unknown {
            OnUnknownType::Ignore => Ok(()),
            OnUnknownType::Reject => Err(Failure::of_kind(Next::Reject, "UnknownType", text)),
            OnUnknownType::Retry => Err(Failure::of_kind(Next::Retry, "UnknownType", text)),
        }
    }
}

impl<T> fmt::Debug for Handlers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("types", &self.typed.keys()).finish_non_exhaustive()
    }
}
