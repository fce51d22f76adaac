//! `[[routes]]`: the destinations of a queue.

use super::{
    key_type::{Key, TableType, ValueType, words},
    origin::{ConfigValue, Origin},
    pattern::TypePattern,
    retry::{self, RETRY},
    section::Section,
    table::Table,
    value::Mistake,
};
use postrider::{Format, OnFailure, Ordering, QueueName, QueuePolicy, RetryStrategy, Template};
use std::{collections::BTreeSet, ops::Deref};

pub(super) const ROUTE: TableType = TableType::Section { keys, check };
const TO: TableType = TableType::Section { keys: to_keys, check: check_to };

const FORMATS: [(&str, Format); 4] = [
    ("binary", Format::Binary),
    ("structured", Format::Structured),
    ("plain", Format::Plain),
    ("debezium", Format::Debezium),
];
const FORMAT_WORDS: [&str; 4] = words(&FORMATS);

const ORDERINGS: [(&str, Ordering); 4] = [
    ("unordered", Ordering::Unordered),
    ("block", Ordering::ByKey(OnFailure::Block)),
    ("park", Ordering::ByKey(OnFailure::Park)),
    ("skip", Ordering::ByKey(OnFailure::Skip)),
];
const ORDERING_WORDS: [&str; 4] = words(&ORDERINGS);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RouteSection {
    pub(crate) database: ConfigValue<String>,
    pub(crate) queue: ConfigValue<String>,
    pub(crate) to: Vec<ToSection>,
    section: Section,
}

/// One destination of a route.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToSection {
    pub(crate) destination: ConfigValue<String>,
    pub(crate) address: ConfigValue<String>,
    /// If set, only messages of these types are sent there.
    pub(crate) types: Option<Vec<TypePattern>>,
}

fn keys() -> Vec<Key> {
    vec![
        Key::new("database", "\"shop\"", ValueType::Reference("databases"))
            .about("Database of the queue; optional if there is only one"),
        Key::string("queue", "\"orders\"").required().rule(queue_name).about("Queue to deliver"),
        Key::new(
            "to",
            "[{ destination = \"events\", address = \"orders.{type}\" }]",
            ValueType::Tables(TO),
        )
        .required()
        .about("Destinations of the queue. Each accepts or fails on its own, with its own retries and dead letters"),
        Key::new("format", "\"binary\"", ValueType::Choice(&FORMAT_WORDS))
            .default("\"binary\"")
            .about("Wire format: CloudEvents in binary or structured mode, the plain payload, or as the outbox router of Debezium writes it"),
        Key::new("ordered", "\"unordered\"", ValueType::Choice(&ORDERING_WORDS))
            .default("\"unordered\"")
            .about("Deliver the messages of a key in order; the word is the effect of a failed message on its key: block, park or skip"),
        Key::new("keep_for", "\"7d\"", ValueType::Duration)
            .about("Retention of delivered messages; none by default"),
        Key::flag("dead_letters")
            .default("true")
            .about("Keep messages that fail permanently; `false` deletes them, and the daemon logs a warning at startup"),
        Key::flag("fair_by_tenant")
            .about("No tenant waits behind the backlog of another; not together with `ordered`"),
        Key::new("concurrency", "10", ValueType::Number).default("2000").about("Messages in flight"),
        Key::new("max_attempts", "10", ValueType::Number)
            .default("10")
            .about("Attempts before a message becomes a dead letter"),
        Key::new("retry", retry::EXAMPLE, ValueType::Table(RETRY)).about("Backoff between attempts"),
        Key::flag("keep_error_text")
            .about("Keep the full error text of the destination, not only the kind of the error; the text may quote the message"),
    ]
}

fn to_keys() -> Vec<Key> {
    vec![
        Key::new("destination", "\"events\"", ValueType::Reference("destinations"))
            .required()
            .about("Destination, by its name"),
        Key::string("address", "\"orders.{type}\"")
            .required()
            .rule(template)
            .about("Address there, with the placeholders `{queue}`, `{type}`, `{key}` and `{tenant}`; `{tenant|nobody}` supplies a default value"),
        Key::new("types", "[\"order.*\"]", ValueType::Strings)
            .rule(|path, text| {
                let invalid = |help| Mistake::new(format!("{path} has an invalid entry"), help);
                TypePattern::parse(text).map(drop).map_err(invalid)
            })
            .about("Event types to send there, such as `\"order.placed\"` or `\"bill.*\"`; the destination skips all others"),
    ]
}

fn check(table: &Table<'_>, route: &mut Section) {
    let lists_delays = route.table("retry").is_some_and(|retry| retry.durations("schedule").is_some());
    if lists_delays
        && let Some(max_attempts) = route.remove("max_attempts")
        && let Origin::Line(line) = max_attempts.origin
    {
        let what = format!("{} conflicts with retry.schedule", table.path("max_attempts"));
        table.report(line, what, "remove it: a schedule makes one attempt more than it has delays");
    }
    if let Err(error) = policy(route).check() {
        table.report(table.line(), format!("{}: {error}", table.name()), "remove one of them");
    }
    let mut seen = BTreeSet::new();
    for destination in route.tables("to").iter().filter_map(|(_, to)| to.text("destination")) {
        let line = table.line_of_value(&destination);
        if let Some(twice) = seen.replace(destination.value) {
            let what = format!("{} lists destination {twice} twice", table.name());
            table.report(line, what, "remove one of them, or define the destination under a second name");
        }
    }
}

fn check_to(table: &Table<'_>, to: &mut Section) {
    if to.value("types").is_some() && to.strings("types").is_empty() {
        let what = format!("{} is empty: no message would match", table.path("types"));
        table.report(table.line_of("types"), what, "remove it, or list a type such as \"order.*\"");
    }
}

fn policy(route: &Section) -> QueuePolicy {
    let default = QueuePolicy::default();
    QueuePolicy {
        ordering: route.choice("ordered", &ORDERINGS).unwrap_or(default.ordering),
        keep_for: route.duration("keep_for"),
        dead_letters: route.flag("dead_letters"),
        fair_by_tenant: route.flag("fair_by_tenant"),
    }
}

impl RouteSection {
    pub(super) fn new(section: Section) -> Option<Self> {
        Some(Self {
            database: section.text("database")?,
            queue: section.text("queue")?,
            to: section.tables("to").iter().map(|(_, to)| ToSection::new(to)).collect::<Option<_>>()?,
            section,
        })
    }

    pub(crate) fn format(&self) -> Format {
        self.choice("format", &FORMATS).unwrap_or_default()
    }

    /// The queue's policy, if the file sets one.
    pub(crate) fn policy(&self) -> Option<QueuePolicy> {
        let policy = policy(self);
        (policy != QueuePolicy::default()).then_some(policy)
    }

    pub(crate) fn retry(&self) -> RetryStrategy {
        let max_attempts = self.number("max_attempts");
        self.table("retry").map(|retry| retry::strategy(retry, max_attempts)).unwrap_or_default()
    }

    /// The number of attempts before a message becomes a dead letter.
    pub(crate) fn max_attempts(&self) -> u32 {
        let max_attempts = self.number("max_attempts");
        self.table("retry").map_or(u32::MAX, |retry| retry::max_attempts(retry, max_attempts))
    }
}

impl Deref for RouteSection {
    type Target = Section;

    fn deref(&self) -> &Section {
        &self.section
    }
}

impl ToSection {
    fn new(section: &Section) -> Option<Self> {
        let types = section.strings("types").iter().map(|text| TypePattern::parse(text).ok());
        Some(Self {
            destination: section.text("destination")?,
            address: section.text("address")?,
            types: section.value("types").and_then(|_| types.collect()),
        })
    }
}

/// The rule of address templates.
pub(super) fn template(path: &str, address: &str) -> Result<(), Mistake> {
    let help =
        "placeholders are {queue}, {type}, {key} and {tenant}; {tenant|nobody} supplies a default value";
    Template::parse(address).map(drop).map_err(|error| Mistake::new(format!("{path}: {error}"), help))
}

/// The rule of queue names.
pub(super) fn queue_name(path: &str, name: &str) -> Result<(), Mistake> {
    let invalid = |error| Mistake::new(format!("{path} is not a valid queue name"), error);
    QueueName::new(name).map(drop).map_err(|error| invalid(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::reader::ConfigReader;
    use std::path::Path;
    use toml::de::DeTable;

    #[test]
    fn defaults_are_those_of_the_engine() {
        let (reader, file) = (ConfigReader::new(Path::new(""), "", None), DeTable::new());
        let table = Table::root(&reader, &file).missing("routes.1");
        let route = Section::read(&table, ROUTE);
        let retry = retry::strategy(route.table("retry").unwrap(), route.number("max_attempts"));
        assert_eq!(retry, RetryStrategy::default());
        assert_eq!(policy(&route), QueuePolicy::default());
        assert_eq!(route.choice("format", &FORMATS), Some(Format::default()));
    }
}
