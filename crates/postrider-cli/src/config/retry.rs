//! `max_attempts` and `retry = { … }` of a route: the backoff between attempts, and when a message becomes a dead letter.

use super::{origin::ConfigValue, route::name_of, setting::Settings, table::Table};
use postrider::{RetryStrategy, retry::Jitter};
use std::time::Duration;

const JITTERS: [(&str, Jitter); 3] =
    [("equal", Jitter::Equal), ("full", Jitter::Full), ("none", Jitter::None)];

pub(super) const KEYS: [&str; 6] = ["initial", "multiplier", "max_delay", "jitter", "schedule", "max_total"];

/// The defaults of `RetryStrategy`.
const INITIAL: Duration = Duration::from_secs(1);
const MULTIPLIER: f64 = 2.0;
const MAX_DELAY: Duration = Duration::from_secs(5 * 60);
const MAX_ATTEMPTS: u32 = 10;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RetrySection {
    backoff: Backoff,
    jitter: ConfigValue<Jitter>,
    max_total: Option<ConfigValue<Duration>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Backoff {
    Exponential {
        initial: ConfigValue<Duration>,
        multiplier: ConfigValue<f64>,
        max_delay: ConfigValue<Duration>,
        max_attempts: ConfigValue<u32>,
    },
    /// The delay after each attempt but the last.
    Schedule(ConfigValue<Vec<Duration>>),
}

impl RetrySection {
    /// Reads the keys of a route.
    pub(super) fn read(route: &Table<'_>) -> Self {
        let max_attempts = route.number("max_attempts", "10");
        let table = route.table("retry");
        let table = table.as_ref();
        if let Some(table) = table {
            table.reject_unknown_keys(&KEYS);
        }
        let duration = |key, example| table.and_then(|table| table.duration(key, example));
        let schedule = table.and_then(|table| table.durations("schedule", "[\"1s\", \"10s\", \"1m\"]"));
        let backoff = match schedule {
            Some(schedule) => {
                if let Some(table) = table {
                    ["initial", "multiplier", "max_delay"].iter().filter(|key| table.has(key)).for_each(
                        |key| {
                            let what = format!("{} conflicts with schedule", table.path(key));
                            table.report(
                                table.line_of(key),
                                what,
                                "remove one of them: a schedule lists every delay",
                            );
                        },
                    );
                }
                if let Some(attempts) = &max_attempts {
                    let what = format!("{} conflicts with retry.schedule", route.path("max_attempts"));
                    let help = "remove it: a schedule makes one attempt more than it has delays";
                    route.report(route.line_of_value(attempts), what, help);
                }
                Backoff::Schedule(schedule)
            }
            None => Backoff::Exponential {
                initial: duration("initial", "\"1s\"").unwrap_or(ConfigValue::default(INITIAL)),
                multiplier: table
                    .and_then(|table| table.decimal("multiplier", "2"))
                    .unwrap_or(ConfigValue::default(MULTIPLIER)),
                max_delay: duration("max_delay", "\"5m\"").unwrap_or(ConfigValue::default(MAX_DELAY)),
                max_attempts: max_attempts.unwrap_or(ConfigValue::default(MAX_ATTEMPTS)),
            },
        };
        let section = Self {
            backoff,
            jitter: table
                .and_then(|table| table.choice("jitter", &JITTERS))
                .unwrap_or(ConfigValue::default(Jitter::Equal)),
            max_total: duration("max_total", "\"1d\""),
        };
        if let (Err(error), Some(table)) = (section.strategy().check(), table) {
            let what = format!("invalid {}: {error}", table.name());
            table.report(
                table.line(),
                what,
                "write retry = { initial = \"1s\", multiplier = 2, max_delay = \"5m\" }",
            );
        }
        section
    }

    pub(crate) fn strategy(&self) -> RetryStrategy {
        let strategy = match &self.backoff {
            Backoff::Exponential { initial, multiplier, max_delay, max_attempts } => {
                RetryStrategy::exponential(initial.value, multiplier.value)
                    .with_max_delay(max_delay.value)
                    .with_max_attempts(max_attempts.value)
            }
            Backoff::Schedule(delays) => RetryStrategy::schedule(delays.value.iter().copied()),
        };
        let strategy = strategy.with_jitter(self.jitter.value);
        match &self.max_total {
            Some(max_total) => strategy.with_max_total(max_total.value),
            None => strategy,
        }
    }

    /// The number of attempts before a message becomes a dead letter.
    pub(crate) fn max_attempts(&self) -> u32 {
        match &self.backoff {
            Backoff::Exponential { max_attempts, .. } => max_attempts.value,
            Backoff::Schedule(delays) => u32::try_from(delays.len()).unwrap_or(u32::MAX).saturating_add(1),
        }
    }

    pub(super) fn settings(&self, route: &str, settings: &mut Settings) {
        let key = |last: &str| format!("{route}.retry.{last}");
        match &self.backoff {
            Backoff::Exponential { initial, multiplier, max_delay, max_attempts } => {
                settings.add(format!("{route}.max_attempts"), max_attempts, max_attempts.value);
                settings.add(key("initial"), initial, format!("{:?}", initial.value));
                settings.add(key("multiplier"), multiplier, multiplier.value);
                settings.add(key("max_delay"), max_delay, format!("{:?}", max_delay.value));
            }
            Backoff::Schedule(delays) => {
                let printed: Vec<_> = delays.iter().map(|delay| format!("{delay:?}")).collect();
                settings.add(key("schedule"), delays, printed);
            }
        }
        settings.add(key("jitter"), &self.jitter, name_of(&JITTERS, &self.jitter));
        if let Some(max_total) = &self.max_total {
            settings.add(key("max_total"), max_total, format!("{:?}", max_total.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_retry_strategy() {
        let default = RetrySection {
            backoff: Backoff::Exponential {
                initial: ConfigValue::default(INITIAL),
                multiplier: ConfigValue::default(MULTIPLIER),
                max_delay: ConfigValue::default(MAX_DELAY),
                max_attempts: ConfigValue::default(MAX_ATTEMPTS),
            },
            jitter: ConfigValue::default(Jitter::Equal),
            max_total: None,
        };
        assert_eq!(default.strategy(), RetryStrategy::default());
    }
}
