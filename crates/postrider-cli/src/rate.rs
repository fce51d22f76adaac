//! Rates, and the interval between batches that keeps sequential work to a rate.

use std::{fmt, time::Duration};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Accepts every rate, and nothing else.
pub(crate) const PATTERN: &str = "^[0-9]*[1-9][0-9]*(/[smh])?$";

/// A rate such as `100/s`, `6000/m` or `360000/h`; a bare number is per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) messages: u32,
    pub(crate) per: Duration,
}

impl Rate {
    fn per_second(self) -> f64 {
        f64::from(self.messages) / self.per.as_secs_f64()
    }

    /// The batch size, up to `max`: no more messages than the rate allows in a second, and at least one.
    pub(crate) fn batch_size(self, max: usize) -> usize {
        (self.per_second().ceil() as usize).clamp(1, max.max(1))
    }

    /// An interval that ticks at once, and then whenever the rate allows the next batch. A slow batch delays the following ticks, so that
    /// no burst exceeds the rate.
    pub(crate) fn interval(self, batch_size: usize) -> Interval {
        let mut interval = interval(self.period(batch_size));
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval
    }

    /// The duration of a batch at this rate. It is never zero, which no interval allows.
    fn period(self, batch_size: usize) -> Duration {
        Duration::from_secs_f64(batch_size as f64 / self.per_second()).max(Duration::from_nanos(1))
    }
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help =
            || format!("invalid rate {text:?}: write 100/s, 6000/m, 360000/h, or 100 for a rate per second");
        let (number, unit) = text.split_once('/').unwrap_or((text, "s"));
        let per = match unit {
            "s" => Duration::from_secs(1),
            "m" => Duration::from_secs(60),
            "h" => Duration::from_secs(3600),
            _ => return Err(help()),
        };
        let messages = number.parse().ok().filter(|messages| *messages > 0).ok_or_else(help)?;
        Ok(Self { messages, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.per.as_secs() {
            60 => "m",
            3600 => "h",
            _ => "s",
        };
        write!(f, "{}/{unit}", self.messages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[test]
    fn rates_are_parsed_and_printed() {
        for (text, messages, seconds, printed) in [
            ("100/s", 100, 1, "100/s"),
            ("6000/m", 6000, 60, "6000/m"),
            ("100", 100, 1, "100/s"),
            ("1800/h", 1800, 3600, "1800/h"),
        ] {
            let rate = Rate { messages, per: Duration::from_secs(seconds) };
            assert_eq!(text.parse(), Ok(rate), "{text}");
            assert_eq!(rate.to_string(), printed);
        }
        for text in ["", "0/s", "fast", "10/d", "-1", "/s"] {
            assert!(text.parse::<Rate>().is_err_and(|help| help.contains("write 100/s")), "{text}");
        }
    }

    #[test]
    fn batches_are_limited_to_the_rate() {
        for (text, max, batch_size, period) in [
            ("100/s", 1000, 100, Duration::from_secs(1)),
            ("100/s", 20, 20, Duration::from_millis(200)),
            ("30/m", 1000, 1, Duration::from_secs(2)),
            ("4294967295/s", 1, 1, Duration::from_nanos(1)),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!((rate.batch_size(max), rate.period(batch_size)), (batch_size, period), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn interval_after_a_slow_batch_does_not_burst() {
        let rate: Rate = "100/s".parse().unwrap();
        let mut ticks = rate.interval(100);
        let began_at = Instant::now();
        ticks.tick().await;
        assert_eq!(began_at.elapsed(), Duration::ZERO);
        ticks.tick().await;
        assert_eq!(began_at.elapsed(), Duration::from_secs(1));
        sleep(Duration::from_secs(5)).await;
        ticks.tick().await;
        assert_eq!(began_at.elapsed(), Duration::from_secs(6));
        ticks.tick().await;
        assert_eq!(began_at.elapsed(), Duration::from_secs(7));
    }
}
