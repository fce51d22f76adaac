//! So many a second and no more.

use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// A rate as people write it: `100/s`, `6000/m`, or `100` for so many a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    a_second: f64,
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = || format!("{text:?} is no rate; write 100/s, 6000/m, or 100 for so many a second");
        let (number, seconds) = match text.split_once('/') {
            None | Some((_, "s")) => (text.split('/').next().unwrap_or_default(), 1.0),
            Some((number, "m")) => (number, 60.0),
            Some((number, "h")) => (number, 3600.0),
            Some(_) => return Err(help()),
        };
        let number: u32 = number.parse().map_err(|_| help())?;
        if number == 0 {
            return Err(help());
        }
        Ok(Self { a_second: f64::from(number) / seconds })
    }
}

/// Keeps to a rate.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Option<Rate>,
    began: Instant,
    done: u64,
}

impl Pace {
    pub(crate) fn new(rate: Option<Rate>) -> Self {
        Self { rate, began: Instant::now(), done: 0 }
    }

    /// How many go at once, of up to so many: no more than fit into a second.
    pub(crate) fn at_once(&self, most: usize) -> usize {
        self.rate.map_or(most, |rate| (rate.a_second.ceil() as usize).clamp(1, most))
    }

    /// So many more were done: waits until others may be.
    pub(crate) async fn wait(&mut self, done: u64) {
        self.done += done;
        sleep_until(self.began + self.takes()).await;
    }

    /// How long all of them take.
    fn takes(&self) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(self.done as f64 / rate.a_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read() {
        for (text, a_second) in [("100/s", 100.0), ("6000/m", 100.0), ("100", 100.0), ("1800/h", 0.5)] {
            assert_eq!(text.parse(), Ok(Rate { a_second }), "{text}");
        }
        for text in ["", "0/s", "fast", "10/d", "-1", "/s"] {
            assert!(text.parse::<Rate>().is_err_and(|help| help.contains("write 100/s")), "{text}");
        }
    }

    #[test]
    fn no_more_go_than_the_rate_allows() {
        let pace = Pace { done: 500, ..Pace::new("100/s".parse().ok()) };
        assert_eq!((pace.at_once(1000), pace.takes()), (100, Duration::from_secs(5)));
        assert_eq!(Pace::new("30/m".parse().ok()).at_once(1000), 1);
        let unbounded = Pace { done: 500, ..Pace::new(None) };
        assert_eq!((unbounded.at_once(1000), unbounded.takes()), (1000, Duration::ZERO));
    }
}
