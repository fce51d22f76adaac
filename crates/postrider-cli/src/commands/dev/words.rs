//! Numbers as people read them.

use super::ledger::Percentiles;
use postrider::inspect::Tally;
use std::{fmt::Display, time::Duration};

/// Three digits that matter: `4.31 ms`, `1.20 s`.
pub(super) fn time(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1000.0;
    match millis {
        ..9.995 => format!("{millis:.2} ms"),
        ..99.95 => format!("{millis:.1} ms"),
        ..999.5 => format!("{millis:.0} ms"),
        _ => format!("{:.2} s", millis / 1000.0),
    }
}

pub(super) fn percentiles(latency: Option<Percentiles>) -> String {
    match latency {
        None => "nothing yet".to_owned(),
        Some(Percentiles { p50, p95, p99 }) => {
            format!("p50 {} · p95 {} · p99 {}", time(p50), time(p95), time(p99))
        }
    }
}

/// A count, or the least that it is.
pub(super) fn tally(tally: Tally) -> String {
    format!("{}{}", tally.at_least, if tally.capped { "+" } else { "" })
}

/// `rejected 3 · undecodable 1`
pub(super) fn list<N: Display>(counts: impl IntoIterator<Item = (N, u64)>) -> String {
    let counts: Vec<_> = counts.into_iter().map(|(name, count)| format!("{name} {count}")).collect();
    counts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
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
}
