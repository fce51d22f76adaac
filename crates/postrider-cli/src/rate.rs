//! Rates, and a pacer that keeps sequential work to one.

use std::{fmt, time::Duration};
use tokio::time::{Instant, sleep_until};

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

/// Keeps work that is done in sequence to a rate.
#[derive(Debug)]
pub(crate) struct Pacer {
    rate: Option<Rate>,
    started: Instant,
    done: u64,
}

impl Pacer {
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        Self { rate, started: Instant::now(), done: 0 }
    }

    /// The batch size, up to `max`: no more than the rate allows in a second.
    pub(crate) fn concurrency(&self, max: usize) -> usize {
        self.rate.map_or(max, |rate| (rate.per_second().ceil() as usize).clamp(1, max))
    }

    /// Counts `done` more, and waits until the rate allows the next.
    pub(crate) async fn wait(&mut self, done: u64) {
        self.done += done;
        sleep_until(self.started + self.duration()).await;
    }

    /// How long everything done so far takes at this rate.
    fn duration(&self) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(self.done as f64 / rate.per_second()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn pace_allows_no_more_than_its_rate() {
        let pace = Pacer { done: 500, ..Pacer::new("100/s".parse().ok()) };
        assert_eq!((pace.concurrency(1000), pace.duration()), (100, Duration::from_secs(5)));
        assert_eq!(Pacer::new("30/m".parse().ok()).concurrency(1000), 1);
        let unlimited = Pacer { done: 500, ..Pacer::new(None) };
        assert_eq!((unlimited.concurrency(1000), unlimited.duration()), (1000, Duration::ZERO));
    }
}
