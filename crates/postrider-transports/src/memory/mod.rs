//! An in-memory transport and queue for tests, with failures on demand.

mod queue;
mod source;

pub use queue::MemoryQueue;
pub use source::MemorySource;

use async_trait::async_trait;
use postrider_core::{Capacity, Finding, Outgoing, PublishError, Receipt, Transport};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Keeps published messages in memory. Cheap to clone; clones share the messages.
///
/// ```
/// # use postrider_core::{Format, Message, MessageId, Outgoing, PublishError, Transport};
/// # use postrider_transports::memory::MemoryTransport;
/// # use std::time::SystemTime;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), postrider_core::Invalid> {
/// # let message = Message::builder("orders").payload("17").build()?;
/// # let now = SystemTime::now();
/// # let outgoing = Outgoing::write(&message, MessageId::at(now), now, "/shop", "orders".into(), Format::Binary)?;
/// let transport = MemoryTransport::new();
/// transport.fail_when(|outgoing| (outgoing.body == "17").then(|| PublishError::retry("busy")));
/// assert!(transport.publish(&[outgoing.clone()]).await[0].is_err());
///
/// transport.fail_when(|_| None);
/// assert!(transport.publish(&[outgoing]).await[0].is_ok());
/// assert_eq!(transport.published()[0].destination, "orders");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryTransport {
    capacity: Capacity,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    published: Vec<Outgoing>,
    failure_rule: Option<FailureRule>,
    is_closed: bool,
}

type FailureRule = Arc<dyn Fn(&Outgoing) -> Option<PublishError> + Send + Sync>;

impl MemoryTransport {
    /// A transport that accepts every message, in batches of up to 1,000.
    pub fn new() -> Self {
        Self::with_capacity(Capacity::of(1_000))
    }

    /// A transport with these limits.
    pub fn with_capacity(capacity: Capacity) -> Self {
        Self { capacity, state: Arc::default() }
    }

    /// The messages that were accepted so far, in order.
    pub fn published(&self) -> Vec<Outgoing> {
        self.lock().published.clone()
    }

    /// From now on, fails the messages for which `rule` returns an error.
    pub fn fail_when(&self, rule: impl Fn(&Outgoing) -> Option<PublishError> + Send + Sync + 'static) {
        self.lock().failure_rule = Some(Arc::new(rule));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish_one(&self, outgoing: &Outgoing, rule: Option<&FailureRule>) -> Result<Receipt, PublishError> {
        if let Some(error) = rule.and_then(|rule| rule(outgoing)) {
            return Err(error);
        }
        if self.capacity.message_bytes.is_some_and(|most| outgoing.size() > most) {
            return Err(PublishError::reject(format!(
                "the message has {} bytes, more than the limit",
                outgoing.size()
            )));
        }
        let mut state = self.lock();
        if state.is_closed {
            return Err(PublishError::unavailable("the transport is closed"));
        }
        let is_duplicate = state.published.iter().any(|other| other.id == outgoing.id);
        state.published.push(outgoing.clone());
        Ok(if is_duplicate { Receipt::duplicate() } else { Receipt::new() })
    }
}

impl Default for MemoryTransport {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for State {
    /// Omits payloads: they may contain personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("published", &self.published.len()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Transport for MemoryTransport {
    fn kind(&self) -> &'static str {
        "memory"
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        // Called without the lock, so that the rule may read the published messages.
        let rule = self.lock().failure_rule.clone();
        batch.iter().map(|outgoing| self.publish_one(outgoing, rule.as_ref())).collect()
    }

    async fn check(&self, _: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let fix = "publish to a broker that keeps messages on disk";
        let lost =
            Finding::warning("in_memory", "memory").because("its messages are lost when the process ends");
        Ok(vec![lost.fixed_by(fix)])
    }

    async fn close(&self) {
        self.lock().is_closed = true;
    }
}
