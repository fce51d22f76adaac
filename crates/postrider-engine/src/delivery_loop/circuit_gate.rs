//! Holding claims back while a circuit is open.

use futures_util::future::BoxFuture;
use postrider_core::{Error, Store};
use std::{fmt::Debug, time::Duration};

/// Decides whether to claim: nothing is claimed for a destination whose circuit is open.
pub trait CircuitGate: Debug + Send + Sync + 'static {
    /// Refreshes what it needs to know from the store before [`acquire`](Self::acquire). Called before every claim, so it
    /// queries the store rarely.
    fn refresh<'g>(&'g self, store: &'g dyn Store) -> BoxFuture<'g, Result<(), Error>>;

    /// Whether and how much to claim now. A granted probe counts as taken.
    fn acquire(&self) -> ClaimPermit;

    /// Gives back a permit of [`acquire`](Self::acquire) that claimed nothing, or whose message was not sent.
    fn release(&self);

    /// Resolves when it is worth calling [`acquire`](Self::acquire) again.
    fn changed(&self) -> BoxFuture<'_, ()>;
}

/// The permit to claim messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimPermit {
    /// The circuit is closed: as much as there is capacity for.
    Unlimited,
    /// The circuit is half-open: one message, as a probe.
    Probe,
    /// The circuit is open: nothing, for this long.
    Denied(Duration),
}
