//! `max_attempts` and `retry = { … }` of a route: the backoff between attempts, and when a message becomes a dead letter.

use super::{
    key_type::{Key, TableType, ValueType, words},
    section::Section,
    table::Table,
};
use postrider::{RetryStrategy, retry::Jitter};

pub(super) const RETRY: TableType = TableType::Section { keys, check };

pub(super) const EXAMPLE: &str = "{ initial = \"1s\", multiplier = 2, max_delay = \"5m\" }";

const JITTERS: [(&str, Jitter); 3] =
    [("equal", Jitter::Equal), ("full", Jitter::Full), ("none", Jitter::None)];
const JITTER_WORDS: [&str; 3] = words(&JITTERS);

const SCHEDULE: &str = "a schedule lists every delay";

fn keys() -> Vec<Key> {
    vec![
        Key::new("initial", "\"1s\"", ValueType::Duration)
            .default("\"1s\"")
            .conflicts_with("schedule", SCHEDULE)
            .renamed_from("first")
            .about("Delay after the first attempt"),
        Key::new("multiplier", "2", ValueType::Decimal)
            .default("2")
            .conflicts_with("schedule", SCHEDULE)
            .renamed_from("factor")
            .about("Each delay is the previous one times this number"),
        Key::new("max_delay", "\"5m\"", ValueType::Duration)
            .default("\"5m\"")
            .conflicts_with("schedule", SCHEDULE)
            .renamed_from("longest")
            .about("Upper limit of a delay"),
        Key::new("schedule", "[\"1s\", \"10s\", \"1m\"]", ValueType::Durations)
            .about("All delays; after the last one the message becomes a dead letter. Not together with `max_attempts` of the route"),
        Key::new("jitter", "\"equal\"", ValueType::Choice(&JITTER_WORDS))
            .default("\"equal\"")
            .about("Random variation of each delay: between half of it and all of it, between zero and all of it, or none"),
        Key::new("max_total", "\"1d\"", ValueType::Duration)
            .renamed_from("give_up_after")
            .about("Upper limit of the time from the first attempt to the last; none by default"),
    ]
}

fn check(table: &Table<'_>, retry: &mut Section) {
    if let Err(error) = strategy(retry, None).check() {
        let what = format!("invalid {}: {error}", table.name());
        table.report(table.line(), what, format!("write retry = {EXAMPLE}"));
    }
}

/// The strategy of this section, and of `max_attempts` of its route unless the section lists all delays.
pub(super) fn strategy(retry: &Section, max_attempts: Option<u32>) -> RetryStrategy {
    let strategy = match (retry.durations("schedule"), retry.duration("initial"), retry.decimal("multiplier"))
    {
        (Some(delays), ..) => RetryStrategy::schedule(delays.iter().copied()),
        (None, Some(initial), Some(multiplier)) => RetryStrategy::exponential(initial, multiplier),
        _ => RetryStrategy::default(),
    };
    let strategy = match max_attempts {
        Some(max_attempts) => strategy.with_max_attempts(max_attempts),
        None => strategy,
    };
    let strategy = match retry.duration("max_delay") {
        Some(max_delay) => strategy.with_max_delay(max_delay),
        None => strategy,
    };
    let strategy = match retry.duration("max_total") {
        Some(max_total) => strategy.with_max_total(max_total),
        None => strategy,
    };
    strategy.with_jitter(retry.choice("jitter", &JITTERS).unwrap_or_default())
}

/// The number of attempts before a message becomes a dead letter.
pub(super) fn max_attempts(retry: &Section, max_attempts: Option<u32>) -> u32 {
    match retry.durations("schedule") {
        Some(delays) => u32::try_from(delays.len()).unwrap_or(u32::MAX).saturating_add(1),
        None => max_attempts.unwrap_or(u32::MAX),
    }
}
