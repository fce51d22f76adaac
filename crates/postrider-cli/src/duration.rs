//! Durations as people write them: `10s`, `2m`, `1h`, `7d`, `500ms`, or just `10` for seconds.

use std::time::Duration;

/// The longest that makes sense to anybody.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Reads a duration that is more than nothing.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let help = || format!("{text:?} is no duration; write 10s, 2m, 1h, 7d, 500ms, or 10 for seconds");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(help()),
    };
    let number: f64 = number.parse().map_err(|_| help())?;
    let duration = Duration::try_from_secs_f64(number * seconds).map_err(|_| help())?;
    if duration.is_zero() || duration > LONGEST {
        return Err(format!("{text:?} is not between 1ms and a year"));
    }
    Ok(duration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        for (text, millis) in [
            ("10", 10_000),
            ("10s", 10_000),
            ("2m", 120_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn the_rest_is_refused_with_help() {
        for text in ["", "s", "ten", "10x", "-1", "1..2s", "10 s", "nan", "inf", "1e400"] {
            assert!(parse(text).is_err_and(|help| help.contains("write 10s, 2m")), "{text}");
        }
        for text in ["0", "0s", "999999h"] {
            assert!(parse(text).is_err_and(|help| help.contains("between")), "{text}");
        }
    }
}
