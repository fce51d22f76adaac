//! Points in time: `2026-10-14T12:00:00Z`, or `2h` for two hours ago.

use crate::duration;
use postrider::cloudevents::rfc3339;
use std::time::{Duration, SystemTime};

/// Parses a point in time.
pub(crate) fn parse(text: &str) -> Result<SystemTime, String> {
    if let Ok(moment) = rfc3339::parse(text) {
        return Ok(moment);
    }
    let ago = duration::parse(text).ok().and_then(|ago| SystemTime::now().checked_sub(ago));
    ago.ok_or_else(|| {
        format!("invalid time {text:?}: write 2026-10-14T12:00:00Z, or an age such as 30m, 2h, 7d")
    })
}

/// Formats a point in time, rounded up to the millisecond, so that an event at or before it is also at or before the result.
pub(crate) fn by(moment: SystemTime) -> String {
    rfc3339::format(moment.checked_add(Duration::from_nanos(999_999)).unwrap_or(moment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ages_are_parsed() {
        let moment = parse("2026-10-14T12:00:00Z").unwrap();
        assert_eq!(rfc3339::format(moment), "2026-10-14T12:00:00.000Z");
        let hours = Duration::from_secs(7200);
        let (before, read, after) = (SystemTime::now(), parse("2h").unwrap(), SystemTime::now());
        assert!(read >= before - hours && read <= after - hours, "{read:?}");
        assert!(parse("yesterday").is_err_and(|help| help.contains("2026-10-14T12:00:00Z")));
    }
}
