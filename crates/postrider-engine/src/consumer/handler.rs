//! Handlers that run in the transaction in which their message is admitted: typed outside, erased once when they are registered.

use crate::{
    failure::{Failure, Next},
    worker::{Context, Tx, Unknown, deliver::panic_text, handler::Decode},
};
use futures_util::{FutureExt, future::BoxFuture};
use postrider_core::Message;
use std::{collections::BTreeMap, fmt, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};

/// A handler of any type of message.
pub(super) trait Handle<T>: Send + Sync + 'static {
    fn handle(&self, tx: Tx<T>, context: Context) -> BoxFuture<'_, Result<(), Failure>>;
}

/// A handler, shared.
pub(super) type Handler<T> = Arc<dyn Handle<T>>;

/// A typed handler.
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

/// A handler that reads the message itself.
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
    pub(super) otherwise: Option<Handler<T>>,
    pub(super) unknown: Unknown,
    pub(super) timeout: Duration,
}

impl<T: Send + 'static> Handlers<T> {
    /// Runs the handler of a message. The transaction comes back if the handler let go of it.
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
        let (tx, home) = Tx::lend(tx);
        // A handler may panic before it gives its future, and while that runs. What it shares is its own affair.
        let running = AssertUnwindSafe(async { handler.handle(tx, context).await }).catch_unwind();
        let result = match timeout_at(deadline, running).await {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(Failure::of_kind(Next::Retry, "Panic", panic_text(panic.as_ref()))),
            Err(_) => {
                let text = format!("the handler took longer than {:?}", self.timeout);
                Err(Failure::of_kind(Next::Retry, "Timeout", text))
            }
        };
        let back = home.take();
        match result {
            Ok(()) if back.is_none() => {
                let text = "the handler kept its transaction: drop it before the handler ends";
                (None, Err(Failure::of_kind(Next::Retry, "TransactionKept", text)))
            }
            result => (back, result),
        }
    }

    fn of(&self, message: &Message) -> Option<&Handler<T>> {
        let typed = message.event_type().and_then(|event_type| self.typed.get(event_type.as_str()));
        typed.or(self.otherwise.as_ref())
    }

    fn unknown(&self, message: &Message) -> Result<(), Failure> {
        let text = match message.event_type() {
            Some(event_type) => format!("no handler is for events of the type {event_type}"),
            None => "no handler is for messages without a type".to_owned(),
        };
        match self.unknown {
            Unknown::Ignore => Ok(()),
            Unknown::Reject => Err(Failure::of_kind(Next::Reject, "UnknownType", text)),
            Unknown::Retry => Err(Failure::of_kind(Next::Retry, "UnknownType", text)),
        }
    }
}

impl<T> fmt::Debug for Handlers<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handlers").field("types", &self.typed.keys()).finish_non_exhaustive()
    }
}
