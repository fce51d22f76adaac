//! Bounds and defaults of timeouts.

use postrider_core::ClientOptions;
#[cfg(any(feature = "nats", feature = "redis"))]
use postrider_core::Invalid;
use std::time::Duration;

/// Below the 15 seconds after which a relay cancels a call.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The request timeout of a client.
pub(crate) fn request_timeout(client: &ClientOptions) -> Duration {
    client.request_timeout().unwrap_or(REQUEST_TIMEOUT)
}

/// Checks that a timeout is longer than zero and at most a day.
#[cfg(any(feature = "nats", feature = "redis"))]
pub(crate) fn check_timeout(name: &'static str, timeout: Duration) -> Result<(), Invalid> {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    match timeout {
        Duration::ZERO => Err(Invalid::rule(name, "is zero; nothing would ever be accepted")),
        timeout if timeout > DAY => Err(Invalid::rule(name, "is longer than a day; give less")),
        _ => Ok(()),
    }
}
