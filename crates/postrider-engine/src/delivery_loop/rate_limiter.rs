//! A rate limiter for claims and sends.

use postrider_core::Invalid;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// A token bucket: it fills at a steady rate up to `messages`.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    messages: u32,
    per: Duration,
    bucket: Mutex<Option<(f64, Instant)>>,
}

impl RateLimiter {
    pub(crate) fn new(messages: u32, per: Duration) -> Self {
        Self { messages, per, bucket: Mutex::new(None) }
    }

    pub(crate) fn check(&self, subject: &str) -> Result<(), Invalid> {
        if self.messages > 0 && !self.per.is_zero() {
            return Ok(());
        }
        let rule = format!(
            "is {} messages per {:?} for {subject}: set at least 1 message and a period above zero",
            self.messages, self.per
        );
        Err(Invalid::rule("rate_limit", rule))
    }

    /// Takes up to `wanted` tokens. When there are none, returns the time until there is one.
    pub(crate) fn acquire(&self, wanted: usize, now: Instant) -> Result<usize, Duration> {
        let burst = f64::from(self.messages);
        let rate = burst / self.per.as_secs_f64();
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, since) = bucket.unwrap_or((burst, now));
        let tokens = (tokens + (now - since).as_secs_f64() * rate).min(burst);
        let taken = tokens.floor().min(wanted as f64);
        *bucket = Some((tokens - taken, now));
        if taken < 1.0 && wanted > 0 {
            return Err(Duration::from_secs_f64((1.0 - tokens) / rate));
        }
        Ok(taken as usize)
    }

    /// Returns unused tokens.
    pub(crate) fn refund(&self, unused: usize) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((tokens, _)) = bucket.as_mut() {
            *tokens = (*tokens + unused as f64).min(f64::from(self.messages));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acquire_is_limited_to_the_rate() {
        let limiter = RateLimiter::new(10, Duration::from_secs(1));
        let begin = Instant::now();
        assert_eq!(limiter.acquire(100, begin), Ok(10));
        let wait = limiter.acquire(100, begin).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert_eq!(limiter.acquire(100, begin + wait), Ok(1));
        assert_eq!(limiter.acquire(100, begin + Duration::from_secs(60)), Ok(10));
    }

    #[test]
    fn refunded_tokens_can_be_acquired_again() {
        let limiter = RateLimiter::new(10, Duration::from_secs(1));
        let now = Instant::now();
        assert_eq!(limiter.acquire(8, now), Ok(8));
        limiter.refund(5);
        assert_eq!(limiter.acquire(100, now), Ok(7));
    }
}
