//! `[[consumers]]`: what is received, and into which queue of the database it is staged.

use super::{
    key::Side,
    origin::{Found, Line},
    place::Place,
    route::{database, queue},
    setting::Settings,
    table::Table,
};
use postrider::ConsumerName;
use std::time::Duration;

/// As many as a consumer has unless said otherwise.
const CONCURRENCY: u32 = 5;

pub(super) const KEYS: [&str; 8] = [
    "database",
    "name",
    "source",
    "to",
    "concurrency",
    "max_deliveries",
    "keep_marks_for",
    "redelivered_within",
];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConsumerSection {
    pub(crate) line: Line,
    pub(crate) database: Found<String>,
    pub(crate) name: Found<String>,
    pub(crate) source: Place,
    pub(crate) to: Found<String>,
    pub(crate) concurrency: Found<u32>,
    pub(crate) max_deliveries: Option<Found<u32>>,
    pub(crate) keep_marks_for: Option<Found<Duration>>,
    pub(crate) redelivered_within: Option<Found<Duration>>,
}

impl ConsumerSection {
    pub(crate) fn read(table: &Table<'_>, databases: &[&str]) -> Option<Self> {
        table.knows(&KEYS);
        let database = database(table, databases);
        let name = table.required("name", "\"billing\"");
        if let Some(name) = &name
            && let Err(error) = ConsumerName::new(name.as_str())
        {
            let what = format!("{} is no name of a consumer", table.path("name"));
            table.wrong(table.line_at(name), what, error.to_string());
        }
        let to = queue(table, "to", "\"incoming-orders\"");
        if table.lacks("source") {
            table.missing("source", "{ kind = \"rabbitmq\", url_env = \"AMQP_URL\", queue = \"orders\" }");
        }
        let source = table.table("source").and_then(|table| Place::read(&table, Side::From));
        Some(Self {
            line: Line(table.line()),
            concurrency: table.number("concurrency", "5").unwrap_or(Found::default(CONCURRENCY)),
            max_deliveries: table.number("max_deliveries", "20"),
            keep_marks_for: table.duration("keep_marks_for", "\"30d\""),
            redelivered_within: table.duration("redelivered_within", "\"14d\""),
            database: database?,
            name: name?,
            source: source?,
            to: to?,
        })
    }

    pub(crate) fn settings(&self, number: usize, settings: &mut Settings) {
        let key = |last: &str| format!("consumers.{number}.{last}");
        settings.text(key("database"), &self.database);
        settings.text(key("name"), &self.name);
        self.source.settings(&key("source"), settings);
        settings.text(key("to"), &self.to);
        settings.add(key("concurrency"), &self.concurrency, self.concurrency.value);
        if let Some(most) = &self.max_deliveries {
            settings.add(key("max_deliveries"), most, most.value);
        }
        for (last, duration) in
            [("keep_marks_for", &self.keep_marks_for), ("redelivered_within", &self.redelivered_within)]
        {
            if let Some(duration) = duration {
                settings.add(key(last), duration, format!("{:?}", duration.value));
            }
        }
    }
}
