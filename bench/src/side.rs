//! What a side of a comparison can do: ours, the reference, the raw lease.

use anyhow::{Result, bail};
use async_trait::async_trait;
use bytes::Bytes;
use postrider_core::Message;

/// What one message carries: 200 bytes that look like JSON.
pub(crate) const PAYLOAD: &[u8; 200] = b"{\"order\":\"0190c6a1-5d8e-7c3b-9f10-2b6a7d4e8f01\",\"customer\":\"c-004217\",\
\"currency\":\"EUR\",\"total\":12995,\"lines\":[{\"sku\":\"A-1001\",\"quantity\":2,\"price\":4999},{\"sku\":\"B-2\",\"quantity\":1}],\
\"note\":\"a gift\"}   ";
/// What happened.
pub(crate) const EVENT_TYPE: &str = "order.placed";
/// How long a claim holds, in seconds. No lease lapses during a run.
pub(crate) const LEASE_SECONDS: u16 = 60;

/// Where ours goes.
pub(crate) const QUEUE: &str = "orders";

/// The messages that our sides stage.
pub(crate) fn batch(messages: usize) -> Result<Vec<Message>> {
    let message = || Message::builder(QUEUE).event_type(EVENT_TYPE).payload(Bytes::from_static(PAYLOAD));
    (0..messages).map(|_| Ok(message().build()?)).collect()
}

/// A way to do the work. Sides of one name have the same tables.
#[async_trait]
pub(crate) trait Side: Send + Sync {
    fn name(&self) -> &'static str;

    /// The table that messages pass through.
    fn table(&self) -> &'static str;

    /// Makes the tables.
    async fn create(&self, url: &str) -> Result<()>;

    /// Opens a connection that stages.
    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>>;

    /// Opens a connection that claims and settles. Adapters only stage.
    async fn worker(&self, _url: &str) -> Result<Box<dyn Worker>> {
        bail!("{} does not claim", self.name())
    }
}

/// Stages messages.
#[async_trait]
pub(crate) trait Producer: Send {
    /// Stages a batch in a transaction of its own.
    async fn stage(&mut self, messages: usize) -> Result<()>;

    async fn close(self: Box<Self>) -> Result<()>;
}

/// Claims messages and settles them.
#[async_trait]
pub(crate) trait Worker: Send {
    /// Claims up to a batch of messages, settles them all as done, and answers how many there were.
    async fn turn(&mut self, batch: usize) -> Result<usize>;

    async fn close(self: Box<Self>) -> Result<()>;
}
