//! The operations of a side of a comparison: ours, the reference, the raw lease.

use anyhow::{Result, bail};
use async_trait::async_trait;
use bytes::Bytes;
use postrider_core::Message;

/// The payload of a message: 200 bytes that look like JSON.
pub(crate) const PAYLOAD: &[u8; 200] = b"{\"order\":\"0190c6a1-5d8e-7c3b-9f10-2b6a7d4e8f01\",\"customer\":\"c-004217\",\
\"currency\":\"EUR\",\"total\":12995,\"lines\":[{\"sku\":\"A-1001\",\"quantity\":2,\"price\":4999},{\"sku\":\"B-2\",\"quantity\":1}],\
\"note\":\"a gift\"}   ";
/// The event type.
pub(crate) const EVENT_TYPE: &str = "order.placed";
/// The duration of a lease, in seconds. No lease expires during a run.
pub(crate) const LEASE_SECONDS: u16 = 60;

/// The queue of our sides.
pub(crate) const QUEUE: &str = "orders";

/// The messages that our sides stage.
pub(crate) fn batch(messages: usize) -> Result<Vec<Message>> {
    let message = || Message::builder(QUEUE).event_type(EVENT_TYPE).payload(Bytes::from_static(PAYLOAD));
    (0..messages).map(|_| Ok(message().build()?)).collect()
}

/// One implementation of the work. Sides with the same name share their tables.
#[async_trait]
pub(crate) trait Side: Send + Sync {
    fn name(&self) -> &'static str;

    /// The table of the messages.
    fn table(&self) -> &'static str;

    /// Creates the tables.
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
    /// Stages a batch in one transaction.
    async fn stage(&mut self, messages: usize) -> Result<()>;

    async fn close(self: Box<Self>) -> Result<()>;
}

/// Claims messages and settles them.
#[async_trait]
pub(crate) trait Worker: Send {
    /// Claims up to a batch of messages, settles all of them as done, and returns their number.
    async fn turn(&mut self, batch: usize) -> Result<usize>;

    async fn close(self: Box<Self>) -> Result<()>;
}
