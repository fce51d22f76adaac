//! A broker, as a relay, a consumer and its client library see it.

use anyhow::Result;
use async_trait::async_trait;
use postrider_core::{Outgoing, Source, Transport};
use std::sync::Arc;

#[async_trait]
pub(crate) trait Broker: Send + Sync {
    fn name(&self) -> &'static str;

    /// What a relay sends with.
    fn transport(&self) -> Result<Arc<dyn Transport>>;

    /// Makes a destination that keeps what it gets.
    async fn create(&self) -> Result<String>;

    /// Removes it with everything in it.
    async fn remove(&self, destination: &str) -> Result<()>;

    /// What a consumer receives with from a destination that was made before.
    fn source(&self, destination: &str) -> Result<Arc<dyn Source>>;

    /// The client library alone.
    async fn client(&self) -> Result<Box<dyn Client>>;
}

/// Publishes without Postrider.
#[async_trait]
pub(crate) trait Client: Send {
    /// Publishes a batch, and returns when the broker has accepted every message of it.
    async fn publish(&mut self, batch: &[Outgoing]) -> Result<()>;
}
