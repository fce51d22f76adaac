//! Backoff between the attempts of a follow-up.

use postrider_core::{Invalid, store::check_lease};
use std::time::Duration;

/// Backoff between the attempts of a follow-up: `min(base · 2ⁿ⁻¹, max)` after its n-th attempt. No jitter: runners do not claim
/// the same follow-up, and operators can tell when it is retried next.
///
/// ```
/// # use postrider_engine::saga::SagaBackoff;
/// let seconds: Vec<_> = (1..=9).map(|attempt| SagaBackoff::default().delay(attempt).as_secs()).collect();
/// assert_eq!(seconds, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SagaBackoff {
    base: Duration,
    max: Duration,
    lease: Duration,
}

impl Default for SagaBackoff {
    /// 30 seconds, doubled up to an hour, with a lease of five minutes.
    fn default() -> Self {
        Self {
            base: Duration::from_secs(30),
            max: Duration::from_secs(3600),
            lease: Duration::from_secs(300),
        }
    }
}

impl SagaBackoff {
    /// Waits `base` after the first attempt, twice as long after each further one, at most `max`. A follow-up whose runner
    /// died is claimed again when its `lease` expires; a lease must be longer than any call.
    ///
    /// # Errors
    /// When one of them is zero, `max` is shorter than `base`, or the lease is out of range.
    pub fn new(base: Duration, max: Duration, lease: Duration) -> Result<Self, Invalid> {
        if base.is_zero() {
            return Err(Invalid::rule(
                "base",
                "is zero; a failing call would be repeated without a delay: set a duration above zero",
            ));
        }
        if max < base {
            return Err(Invalid::rule(
                "max",
                format!("is {max:?}, shorter than the base of {base:?}: set at least that"),
            ));
        }
        check_lease(lease)?;
        Ok(Self { base, max, lease })
    }

    /// The delay after this many attempts. 0 counts as 1.
    pub fn delay(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.max)
    }

    /// The lease duration.
    pub fn lease(&self) -> Duration {
        self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_never_overflows() {
        let backoff = SagaBackoff::new(Duration::MAX, Duration::MAX, Duration::from_secs(1)).unwrap();
        assert_eq!(backoff.delay(u32::MAX), Duration::MAX);
        assert_eq!(SagaBackoff::default().delay(u32::MAX), Duration::from_secs(3600));
        assert_eq!(SagaBackoff::default().delay(0), Duration::from_secs(30));
    }

    #[test]
    fn invalid_durations_are_rejected() {
        let second = Duration::from_secs(1);
        for (base, max, lease) in
            [(Duration::ZERO, second, second), (second * 2, second, second), (second, second, Duration::ZERO)]
        {
            SagaBackoff::new(base, max, lease).unwrap_err();
        }
    }
}
