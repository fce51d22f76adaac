//! Exponential backoff.

use std::time::Duration;

/// Exponential backoff with jitter, which keeps processes apart.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = self.next.mul_f64(rand::random_range(0.5..1.5));
        self.next = (self.next * 2).min(self.longest);
        delay
    }
}
