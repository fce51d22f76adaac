//! Durations as jiff's friendly format writes them: `10s`, `2m`, `1h30m`, `7d`, `500ms`; a bare number is in seconds.

use jiff::{Span, SpanRelativeTo};
use std::time::Duration;

/// The longest duration that any setting accepts.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Accepts every text that `parse` accepts, unless it is spelt in an unusual way: numbers with units, or a number of seconds.
pub(crate) const PATTERN: &str = concat!(
    r"^[0-9]+([.][0-9]+)?$|^([0-9]+([.][0-9]+)? ?",
    "(w|wks?|weeks?|d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|msecs?|millis?|milliseconds?)",
    "(, ?| )?)+$"
);

/// Parses a duration between a millisecond and a year.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let duration = seconds(text).or_else(|| days(text)).or_else(|| friendly(text)).ok_or_else(|| {
        format!("invalid duration {text:?}: write 10s, 2m, 1h30m, 7d, 500ms, or 10 for seconds")
    })?;
    if duration.is_zero() || duration > LONGEST {
        return Err(format!("duration {text:?} out of range: write one between 1ms and a year"));
    }
    Ok(duration)
}

/// A bare number of seconds.
fn seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

/// Days with a fraction, which jiff does not have.
fn days(text: &str) -> Option<Duration> {
    let days: f64 = text.strip_suffix('d')?.parse().ok()?;
    Duration::try_from_secs_f64(days * 86_400.0).ok()
}

fn friendly(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, millis) in [
            ("10", 10_000),
            ("1.5", 1_500),
            ("10s", 10_000),
            ("2m", 120_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("1.5ms", 1),
            ("1h", 3_600_000),
            ("1.5h", 5_400_000),
            ("7d", 604_800_000),
            ("1.5d", 129_600_000),
            ("1h30m", 5_400_000),
            ("1d 12h", 129_600_000),
            ("2 weeks", 1_209_600_000),
        ] {
            let parsed = parse(text).map(|duration| duration.as_millis());
            assert_eq!(parsed, Ok(millis), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected_with_help() {
        for text in
            ["", "s", "ten", "10x", "-1", "-1s", "1s ago", "1..2s", "nan", "inf", "1e400", "1mo", "1y"]
        {
            assert!(parse(text).is_err_and(|help| help.contains("write 10s, 2m")), "{text}");
        }
        for text in ["0", "0s", "999999h"] {
            assert!(parse(text).is_err_and(|help| help.contains("between")), "{text}");
        }
    }
}
