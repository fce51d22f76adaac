//! Bounds of timeouts.

use postrider_core::Invalid;
use std::time::Duration;

/// Checks that a timeout is longer than zero and at most a day.
pub(crate) fn check_timeout(name: &'static str, timeout: Duration) -> Result<(), Invalid> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    match timeout {
        Duration::ZERO => Err(Invalid::rule(name, "is zero; nothing would ever be accepted")),
        timeout if timeout > DAY => Err(Invalid::rule(name, "is longer than a day; give less")),
        _ => Ok(()),
    }
}
