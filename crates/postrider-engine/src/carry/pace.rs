//! A limit on how fast messages are claimed, or sent.

use postrider_core::Invalid;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// A bucket that fills at a steady rate and holds what may go now.
#[derive(Debug)]
pub(crate) struct Pace {
    messages: u32,
    per: Duration,
    bucket: Mutex<Option<(f64, Instant)>>,
}

impl Pace {
    pub(crate) fn new(messages: u32, per: Duration) -> Self {
        Self { messages, per, bucket: Mutex::new(None) }
    }

    pub(crate) fn check(&self, whose: &str) -> Result<(), Invalid> {
        if self.messages > 0 && !self.per.is_zero() {
            return Ok(());
        }
        let rule = format!(
            "is {} messages per {:?} for {whose}; give at least one message and some time",
            self.messages, self.per
        );
        Err(Invalid::rule("rate", rule))
    }

    /// How many of `wanted` may be claimed now; when none, how long until one may.
    pub(crate) fn take(&self, wanted: usize, now: Instant) -> Result<usize, Duration> {
        let full = f64::from(self.messages);
        let rate = full / self.per.as_secs_f64();
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let (held, since) = bucket.unwrap_or((full, now));
        let held = (held + (now - since).as_secs_f64() * rate).min(full);
        let taken = held.floor().min(wanted as f64);
        *bucket = Some((held - taken, now));
        if taken < 1.0 && wanted > 0 {
            return Err(Duration::from_secs_f64((1.0 - held) / rate));
        }
        Ok(taken as usize)
    }

    /// Puts back what was not needed.
    pub(crate) fn put_back(&self, unused: usize) {
        let mut bucket = self.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((held, _)) = bucket.as_mut() {
            *held = (*held + unused as f64).min(f64::from(self.messages));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_second_brings_more_than_its_share() {
        let pace = Pace::new(10, Duration::from_secs(1));
        let begin = Instant::now();
        assert_eq!(pace.take(100, begin), Ok(10));
        let wait = pace.take(100, begin).unwrap_err();
        assert_eq!(wait, Duration::from_millis(100));
        assert_eq!(pace.take(100, begin + wait), Ok(1));
        assert_eq!(pace.take(100, begin + Duration::from_secs(60)), Ok(10));
    }

    #[test]
    fn what_was_not_needed_can_be_taken_later() {
        let pace = Pace::new(10, Duration::from_secs(1));
        let now = Instant::now();
        assert_eq!(pace.take(8, now), Ok(8));
        pace.put_back(5);
        assert_eq!(pace.take(100, now), Ok(7));
    }
}
