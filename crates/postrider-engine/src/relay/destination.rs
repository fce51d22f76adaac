//! A destination of a relay, and how it is used.

use super::{batcher::Batcher, circuit_breaker::CircuitBreaker, operator_pauses::OperatorPauses};
use crate::delivery_loop::rate_limiter::RateLimiter;
use postrider_core::{Invalid, Transport};
use std::{fmt, sync::Arc, time::Duration};

/// A destination: a transport, and its send settings. Routes refer to it by name and share it.
///
/// ```
/// # use postrider_engine::relay::Destination;
/// # use postrider_transports::memory::MemoryTransport;
/// # use std::time::Duration;
/// let billing = Destination::new("billing", MemoryTransport::new())
///     .timeout(Duration::from_secs(5))
///     .rate_limit(1_000, Duration::from_secs(1));
/// ```
#[must_use = "a destination does nothing until a relay has it"]
pub struct Destination {
    pub(super) name: String,
    transport: Arc<dyn Transport>,
    timeout: Duration,
    batch: Option<usize>,
    concurrency: usize,
    rate_limit: Option<(u32, Duration)>,
    circuit_backoff: (Duration, Duration),
}

impl Destination {
    /// A destination called `name` that is reached by `transport`.
    pub fn new(name: impl Into<String>, transport: impl Transport) -> Self {
        Self::shared(name, Arc::new(transport))
    }

    /// A destination with a transport that is already shared.
    pub fn shared(name: impl Into<String>, transport: Arc<dyn Transport>) -> Self {
        Self {
            name: name.into(),
            transport,
            timeout: Duration::from_secs(15),
            batch: None,
            concurrency: 2,
            rate_limit: None,
            circuit_backoff: (Duration::from_millis(500), Duration::from_secs(30)),
        }
    }

    /// Publish timeout of a batch; default 15 seconds. After a timeout it is unknown which messages arrived, and the same
    /// messages are sent again.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Batch size: the maximum number of messages per publish call. Default: as many as the transport accepts.
    pub fn batch_size(mut self, messages: usize) -> Self {
        self.batch = Some(messages);
        self
    }

    /// Concurrency: the maximum number of batches in flight; default 2.
    pub fn concurrency(mut self, batches: usize) -> Self {
        self.concurrency = batches;
        self
    }

    /// Rate limit: at most `messages` per `per`, per process.
    pub fn rate_limit(mut self, messages: u32, per: Duration) -> Self {
        self.rate_limit = Some((messages, per));
        self
    }

    /// Circuit-breaker backoff: while the destination is unavailable, probes it after delays that grow from `first` to
    /// `longest`; default 500 ms to 30 seconds.
    pub fn circuit_backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.circuit_backoff = (first, longest);
        self
    }

    pub(super) fn open(self, operator_pauses: &Arc<OperatorPauses>) -> Result<Arc<Batcher>, Invalid> {
        let name = &self.name;
        let invalid = |field: &'static str, rule: String| Err(Invalid::rule(field, rule));
        if name.is_empty() || name.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return invalid(
                "destination",
                format!("{name:?} is not a valid name: give it a name without white space"),
            );
        }
        if self.timeout.is_zero() {
            return invalid(
                "timeout",
                format!("is zero for destination {name}; nothing could be sent: set a timeout above zero"),
            );
        }
        if self.batch == Some(0) || self.concurrency == 0 {
            let field = if self.batch == Some(0) { "batch_size" } else { "concurrency" };
            return invalid(
                field,
                format!("is 0 for destination {name}; nothing would be sent: set at least 1"),
            );
        }
        if self.circuit_backoff.0.is_zero() || self.circuit_backoff.0 > self.circuit_backoff.1 {
            let (first, longest) = self.circuit_backoff;
            let rule = format!(
                "is {first:?} to {longest:?} for destination {name}: the first delay must be above zero and at most the longest"
            );
            return invalid("circuit_backoff", rule);
        }
        let rate_limiter = self.rate_limit.map(|(messages, per)| RateLimiter::new(messages, per));
        if let Some(rate_limiter) = &rate_limiter {
            rate_limiter.check(&format!("destination {name}"))?;
        }
        let mut capacity = self.transport.capacity();
        capacity.batch = capacity.batch.min(self.batch.unwrap_or(usize::MAX)).max(1);
        // A probe may wait for its lease, its publish result and its settlement.
        let probe_timeout = self.timeout.saturating_mul(2);
        let breaker = Arc::new(CircuitBreaker::new(
            name,
            self.circuit_backoff.0,
            self.circuit_backoff.1,
            probe_timeout,
            Arc::clone(operator_pauses),
        ));
        let sending = (self.timeout, self.concurrency);
        Ok(Arc::new(Batcher::new(self.name, self.transport, capacity, sending, rate_limiter, breaker)))
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination").field("name", &self.name).finish_non_exhaustive()
    }
}
