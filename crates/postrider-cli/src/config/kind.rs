//! The kinds of destinations and sources: a broker, webhooks, or standard output. Not every build has all of them.

use super::{
    key::Direction,
    key_type::{Key, ValueType, words as words_of},
    table::Table,
};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Stdout,
    Webhook,
    RabbitMq,
    Nats,
    Redis,
    Kafka,
    Sqs,
    Sns,
}

pub(super) const KINDS: [(&str, Kind); 8] = [
    ("stdout", Kind::Stdout),
    ("webhook", Kind::Webhook),
    ("rabbitmq", Kind::RabbitMq),
    ("nats", Kind::Nats),
    ("redis", Kind::Redis),
    ("kafka", Kind::Kafka),
    ("sqs", Kind::Sqs),
    ("sns", Kind::Sns),
];

const WORDS: [&str; 8] = words_of(&KINDS);

/// The names of the kinds of destinations or sources.
pub(super) const fn words(direction: Direction) -> &'static [&'static str] {
    match (direction, &WORDS) {
        (Direction::Destination, words) => words,
        // Standard output and SNS topics are destinations only: an SNS topic delivers to SQS queues.
        (Direction::Source, [_, words @ .., _]) => words,
    }
}

/// The key `kind`.
pub(super) const fn key(direction: Direction) -> Key {
    Key::new("kind", "\"webhook\"", ValueType::Choice(words(direction)))
        .required()
        .about("Kind, which determines the other keys. All except `stdout` and `webhook` are in builds with the Cargo feature of the same name")
}

impl Kind {
    fn is_built(self) -> bool {
        match self {
            Self::Stdout | Self::Webhook => true,
            Self::RabbitMq => cfg!(feature = "rabbitmq"),
            Self::Nats => cfg!(feature = "nats"),
            Self::Redis => cfg!(feature = "redis"),
            Self::Kafka => cfg!(feature = "kafka"),
            Self::Sqs => cfg!(feature = "sqs"),
            Self::Sns => cfg!(feature = "sns"),
        }
    }

    /// Reports a kind that this build does not have.
    pub(super) fn check_built(self, table: &Table<'_>) {
        if !self.is_built() {
            let what =
                format!("{} is {:?}, which this build does not have", table.path("kind"), self.to_string());
            table.report(table.line_of("kind"), what, self.advice());
        }
    }

    /// What to do about a kind that this build does not have.
    fn advice(self) -> String {
        format!("install a build with it: cargo install postrider-cli --features {self} (or --features full)")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KINDS.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_kind_advises_the_feature_to_install() {
        let advice =
            "install a build with it: cargo install postrider-cli --features kafka (or --features full)";
        assert_eq!(Kind::Kafka.advice(), advice);
    }
}
