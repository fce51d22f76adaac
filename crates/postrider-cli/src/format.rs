//! Durations and counts for terminal output.

use postrider::inspect::CappedCount;
use std::{fmt::Display, time::Duration};

/// A duration with three significant digits: `4.31 ms`, `1.20 s`.
pub(crate) fn time(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    match millis {
        ..9.995 => format!("{millis:.2} ms"),
        ..99.95 => format!("{millis:.1} ms"),
        ..999.5 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1000.0),
    }
}

/// A duration in up to two units: `250ms`, `12s`, `3m 20s`, `2h 5m`, `3d 4h`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86400 => format!("{}h {}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d {}h", seconds / 86400, seconds / 3600 % 24),
    }
}

/// A count, with `+` if it is capped.
pub(crate) fn tally(count: CappedCount) -> String {
    format!("{}{}", count.at_least, if count.capped { "+" } else { "" })
}

/// `rejected 3 · undecodable 1`
pub(crate) fn list<N: Display>(counts: impl IntoIterator<Item = (N, u64)>) -> String {
    let counts: Vec<_> = counts.into_iter().map(|(name, count)| format!("{name} {count}")).collect();
    counts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_has_three_significant_digits() {
        for (micros, expected) in [
            (0, "0.00 ms"),
            (4_312, "4.31 ms"),
            (9_996, "10.0 ms"),
            (43_120, "43.1 ms"),
            (99_960, "100 ms"),
            (431_200, "431 ms"),
            (999_600, "1.00 s"),
            (61_000_000, "61.00 s"),
        ] {
            assert_eq!(time(Duration::from_micros(micros)), expected);
        }
    }

    #[test]
    fn span_has_at_most_two_units() {
        for (seconds, expected) in
            [(0, "0ms"), (12, "12s"), (200, "3m 20s"), (7500, "2h 5m"), (273_600, "3d 4h")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), expected);
        }
    }
}
