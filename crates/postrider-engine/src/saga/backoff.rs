//! When a follow-up is tried again.

use postrider_core::{Invalid, store::check_lease};
use std::time::Duration;

/// When a follow-up is tried again: `min(base · 2ⁿ⁻¹, max)` after its n-th attempt. No jitter: runners do not take the same follow-up
/// anyway, and whoever looks at one can tell when it is tried next.
///
/// ```
/// # use postrider_engine::saga::Backoff;
/// let seconds: Vec<_> = (1..=9).map(|attempt| Backoff::default().delay(attempt).as_secs()).collect();
/// assert_eq!(seconds, [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    lease: Duration,
}

impl Default for Backoff {
    /// 30 seconds, doubled up to an hour, under a lease of five minutes.
    fn default() -> Self {
        Self {
            base: Duration::from_secs(30),
            max: Duration::from_secs(3600),
            lease: Duration::from_secs(300),
        }
    }
}

impl Backoff {
    /// Waits `base` after the first attempt, twice as long after each further one, and never longer than `max`. A follow-up whose runner
    /// has died is taken up again when its `lease` has lapsed; a lease must be longer than any call.
    ///
    /// # Errors
    /// When one of them is nothing, `max` is shorter than `base`, or the lease cannot be kept.
    pub fn new(base: Duration, max: Duration, lease: Duration) -> Result<Self, Invalid> {
        if base.is_zero() {
            return Err(Invalid::rule("base", "is zero; a failing call would be repeated without a pause"));
        }
        if max < base {
            return Err(Invalid::rule("max", format!("is {max:?}, shorter than the base of {base:?}")));
        }
        check_lease(lease)?;
        Ok(Self { base, max, lease })
    }

    /// The wait after so many attempts. There is none before the first: 0 counts as 1.
    pub fn delay(&self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.max)
    }

    /// How long a claim protects a follow-up.
    pub fn lease(&self) -> Duration {
        self.lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_overflows() {
        let backoff = Backoff::new(Duration::MAX, Duration::MAX, Duration::from_secs(1)).unwrap();
        assert_eq!(backoff.delay(u32::MAX), Duration::MAX);
        assert_eq!(Backoff::default().delay(u32::MAX), Duration::from_secs(3600));
        assert_eq!(Backoff::default().delay(0), Duration::from_secs(30));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let second = Duration::from_secs(1);
        for (base, max, lease) in
            [(Duration::ZERO, second, second), (second * 2, second, second), (second, second, Duration::ZERO)]
        {
            Backoff::new(base, max, lease).unwrap_err();
        }
    }
}
