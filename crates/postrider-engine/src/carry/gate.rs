//! Holding claims back.

use futures_util::future::BoxFuture;
use postrider_core::{Error, Store};
use std::{fmt::Debug, time::Duration};

/// Says whether there is a point in claiming: a queue whose destination is down is better left alone.
pub trait Gate: Debug + Send + Sync + 'static {
    /// Asks the store what it has to know before anybody [looks](Self::look). It is called before every claim, so it seldom asks.
    fn prepare<'g>(&'g self, store: &'g dyn Store) -> BoxFuture<'g, Result<(), Error>>;

    /// Whether to claim now.
    fn look(&self) -> Passage;

    /// Nothing was claimed, though [`look`](Self::look) had let it pass.
    fn put_back(&self);

    /// Returns when it is worth looking again.
    fn changed(&self) -> BoxFuture<'_, ()>;
}

/// Whether to claim now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// As much as there is room for.
    Open,
    /// One message, to see whether it gets through.
    One,
    /// Nothing, for so long.
    Shut(Duration),
}
