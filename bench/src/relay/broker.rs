//! A broker, with the transport, source and client library for it.

use anyhow::Result;
use async_trait::async_trait;
use postrider_core::{Outgoing, Source, Transport};
use std::sync::Arc;

#[async_trait]
pub(crate) trait Broker: Send + Sync {
    fn name(&self) -> &'static str;

    /// The transport of a relay.
    fn transport(&self) -> Result<Arc<dyn Transport>>;

    /// Creates a destination that stores its messages.
    async fn create(&self) -> Result<String>;

    /// Removes it with everything in it.
    async fn remove(&self, destination: &str) -> Result<()>;

    /// The source of a consumer, for a destination that was created before.
    fn source(&self, destination: &str) -> Result<Arc<dyn Source>>;

    /// The client library alone.
    async fn client(&self) -> Result<Box<dyn Client>>;
}

/// Publishes without Postrider.
#[async_trait]
pub(crate) trait Client: Send {
    /// Publishes a batch, and returns when the broker has confirmed every message of it.
    async fn publish(&mut self, batch: &[Outgoing]) -> Result<()>;
}
