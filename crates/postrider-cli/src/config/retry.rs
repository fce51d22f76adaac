//! `max_attempts` and `retry = { … }` of a route: when what was refused is sent again, and when it is given up.

use super::{origin::Found, route::word, setting::Settings, table::Table};
use postrider::{RetryStrategy, retry::Jitter};
use std::time::Duration;

const JITTERS: [(&str, Jitter); 3] =
    [("equal", Jitter::Equal), ("full", Jitter::Full), ("none", Jitter::None)];

pub(super) const KEYS: [&str; 6] = ["first", "factor", "longest", "jitter", "schedule", "give_up_after"];

/// As a strategy is unless said otherwise.
const FIRST: Duration = Duration::from_secs(1);
const FACTOR: f64 = 2.0;
const LONGEST: Duration = Duration::from_secs(5 * 60);
const ATTEMPTS: u32 = 10;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RetrySection {
    pace: Pace,
    jitter: Found<Jitter>,
    give_up_after: Option<Found<Duration>>,
}

#[derive(Debug, Clone, PartialEq)]
enum Pace {
    Growing {
        first: Found<Duration>,
        factor: Found<f64>,
        longest: Found<Duration>,
        max_attempts: Found<u32>,
    },
    /// After each attempt but the last.
    Schedule(Found<Vec<Duration>>),
}

impl RetrySection {
    /// Of a route.
    pub(super) fn read(route: &Table<'_>) -> Self {
        let max_attempts = route.number("max_attempts", "10");
        let table = route.table("retry");
        let table = table.as_ref();
        if let Some(table) = table {
            table.knows(&KEYS);
        }
        let duration = |key, example| table.and_then(|table| table.duration(key, example));
        let schedule = table.and_then(|table| table.durations("schedule", "[\"1s\", \"10s\", \"1m\"]"));
        let pace = match schedule {
            Some(schedule) => {
                if let Some(table) = table {
                    ["first", "factor", "longest"].iter().filter(|key| table.has(key)).for_each(|key| {
                        let what = format!("{} is given besides schedule", table.path(key));
                        table.wrong(
                            table.line_of(key),
                            what,
                            "leave one out: a schedule says each pause itself",
                        );
                    });
                }
                if let Some(attempts) = &max_attempts {
                    let what = format!("{} is given besides a schedule", route.path("max_attempts"));
                    let help = "leave it out: there is one attempt more than the schedule has pauses";
                    route.wrong(route.line_at(attempts), what, help);
                }
                Pace::Schedule(schedule)
            }
            None => Pace::Growing {
                first: duration("first", "\"1s\"").unwrap_or(Found::default(FIRST)),
                factor: table
                    .and_then(|table| table.decimal("factor", "2"))
                    .unwrap_or(Found::default(FACTOR)),
                longest: duration("longest", "\"5m\"").unwrap_or(Found::default(LONGEST)),
                max_attempts: max_attempts.unwrap_or(Found::default(ATTEMPTS)),
            },
        };
        let section = Self {
            pace,
            jitter: table
                .and_then(|table| table.word("jitter", &JITTERS))
                .unwrap_or(Found::default(Jitter::Equal)),
            give_up_after: duration("give_up_after", "\"1d\""),
        };
        if let (Err(error), Some(table)) = (section.strategy().check(), table) {
            let what = format!("{} makes no sense: {error}", table.name());
            table.wrong(table.line(), what, "write retry = { first = \"1s\", factor = 2, longest = \"5m\" }");
        }
        section
    }

    pub(crate) fn strategy(&self) -> RetryStrategy {
        let strategy = match &self.pace {
            Pace::Growing { first, factor, longest, max_attempts } => {
                RetryStrategy::exponential(first.value, factor.value)
                    .with_max_delay(longest.value)
                    .with_max_attempts(max_attempts.value)
            }
            Pace::Schedule(pauses) => RetryStrategy::schedule(pauses.value.iter().copied()),
        };
        let strategy = strategy.with_jitter(self.jitter.value);
        match &self.give_up_after {
            Some(total) => strategy.with_max_total(total.value),
            None => strategy,
        }
    }

    /// How many attempts there are at the most.
    pub(crate) fn attempts(&self) -> u32 {
        match &self.pace {
            Pace::Growing { max_attempts, .. } => max_attempts.value,
            Pace::Schedule(pauses) => u32::try_from(pauses.len()).unwrap_or(u32::MAX).saturating_add(1),
        }
    }

    pub(super) fn settings(&self, route: &str, settings: &mut Settings) {
        let key = |last: &str| format!("{route}.retry.{last}");
        match &self.pace {
            Pace::Growing { first, factor, longest, max_attempts } => {
                settings.add(format!("{route}.max_attempts"), max_attempts, max_attempts.value);
                settings.add(key("first"), first, format!("{:?}", first.value));
                settings.add(key("factor"), factor, factor.value);
                settings.add(key("longest"), longest, format!("{:?}", longest.value));
            }
            Pace::Schedule(pauses) => {
                let shown: Vec<_> = pauses.iter().map(|pause| format!("{pause:?}")).collect();
                settings.add(key("schedule"), pauses, shown);
            }
        }
        settings.add(key("jitter"), &self.jitter, word(&JITTERS, &self.jitter));
        if let Some(total) = &self.give_up_after {
            settings.add(key("give_up_after"), total, format!("{:?}", total.value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_as_everywhere() {
        let usual = RetrySection {
            pace: Pace::Growing {
                first: Found::default(FIRST),
                factor: Found::default(FACTOR),
                longest: Found::default(LONGEST),
                max_attempts: Found::default(ATTEMPTS),
            },
            jitter: Found::default(Jitter::Equal),
            give_up_after: None,
        };
        assert_eq!(usual.strategy(), RetryStrategy::default());
    }
}
