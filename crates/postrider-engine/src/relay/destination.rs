//! Where a relay sends, and how.

use super::{breaker::Breaker, pauses::Pauses, post::Post};
use crate::carry::pace::Pace;
use postrider_core::{Invalid, Transport};
use std::{fmt, sync::Arc, time::Duration};

/// Somewhere that messages are sent to: a transport, and how it is used. Routes name it; all of them share it.
///
/// ```
/// # use postrider_engine::relay::Destination;
/// # use postrider_transports::memory::MemoryTransport;
/// # use std::time::Duration;
/// let billing = Destination::new("billing", MemoryTransport::new())
///     .timeout(Duration::from_secs(5))
///     .rate(1_000, Duration::from_secs(1));
/// ```
#[must_use = "a destination does nothing until a relay has it"]
pub struct Destination {
    pub(super) name: String,
    transport: Arc<dyn Transport>,
    timeout: Duration,
    batch: Option<usize>,
    at_once: usize,
    rate: Option<(u32, Duration)>,
    pauses: (Duration, Duration),
}

impl Destination {
    /// The destination `name`, reached by `transport`.
    pub fn new(name: impl Into<String>, transport: impl Transport) -> Self {
        Self::shared(name, Arc::new(transport))
    }

    /// The same, with a transport that is shared already.
    pub fn shared(name: impl Into<String>, transport: Arc<dyn Transport>) -> Self {
        Self {
            name: name.into(),
            transport,
            timeout: Duration::from_secs(15),
            batch: None,
            at_once: 2,
            rate: None,
            pauses: (Duration::from_millis(500), Duration::from_secs(30)),
        }
    }

    /// Waits so long for the answer to a batch; 15 seconds unless said otherwise. Without an answer nobody knows what arrived,
    /// and the same messages are sent again.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends at most so many messages together; as many as the transport takes unless said otherwise.
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = Some(messages);
        self
    }

    /// Has at most so many batches under way; 2 unless said otherwise.
    pub fn at_once(mut self, batches: usize) -> Self {
        self.at_once = batches;
        self
    }

    /// Sends at most so many messages in so long. Each process counts for itself.
    pub fn rate(mut self, messages: u32, per: Duration) -> Self {
        self.rate = Some((messages, per));
        self
    }

    /// While nothing gets through, tries again after pauses that grow from `first` to `longest`; half a second and 30 seconds
    /// unless said otherwise.
    pub fn pauses(mut self, first: Duration, longest: Duration) -> Self {
        self.pauses = (first, longest);
        self
    }

    pub(super) fn open(self, pauses: &Arc<Pauses>) -> Result<Arc<Post>, Invalid> {
        let name = &self.name;
        let wrong = |field: &'static str, rule: String| Err(Invalid::rule(field, rule));
        if name.is_empty() || name.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return wrong("destination", format!("{name:?} is no name: give it one without white space"));
        }
        if self.timeout.is_zero() {
            return wrong("timeout", format!("is zero for destination {name}; nothing could be sent"));
        }
        if self.batch == Some(0) || self.at_once == 0 {
            return wrong(
                "batch",
                format!("is 0 for destination {name}; nothing would be sent: give at least 1"),
            );
        }
        if self.pauses.0.is_zero() || self.pauses.0 > self.pauses.1 {
            let (first, longest) = self.pauses;
            let rule = format!(
                "are {first:?} to {longest:?} for destination {name}; the first must be more than nothing and at most the longest"
            );
            return wrong("pauses", rule);
        }
        let pace = self.rate.map(|(messages, per)| Pace::new(messages, per));
        if let Some(pace) = &pace {
            pace.check(&format!("destination {name}"))?;
        }
        let mut capacity = self.transport.capacity();
        capacity.batch = capacity.batch.min(self.batch.unwrap_or(usize::MAX)).max(1);
        // A trial may wait for its lease, its answer and its settlement.
        let trial = self.timeout.saturating_mul(2);
        let breaker = Arc::new(Breaker::new(name, self.pauses.0, self.pauses.1, trial, Arc::clone(pauses)));
        let sending = (self.timeout, self.at_once);
        Ok(Arc::new(Post::new(self.name, self.transport, capacity, sending, pace, breaker)))
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination").field("name", &self.name).finish_non_exhaustive()
    }
}
