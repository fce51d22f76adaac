//! `[[consumers]]`: a source, and the queue of the database that received messages are staged in.

use super::{
    endpoint::EndpointSection,
    key::Direction,
    origin::{ConfigValue, SectionLine},
    route::{database, queue},
    setting::Settings,
    table::Table,
};
use postrider::ConsumerName;
use std::time::Duration;

/// The consumer's default.
const CONCURRENCY: u32 = 5;

pub(super) const KEYS: [&str; 8] = [
    "database",
    "name",
    "source",
    "to",
    "concurrency",
    "max_deliveries",
    "keep_deduplication_records_for",
    "redelivery_window",
];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConsumerSection {
    pub(crate) line: SectionLine,
    pub(crate) database: ConfigValue<String>,
    pub(crate) name: ConfigValue<String>,
    pub(crate) source: EndpointSection,
    pub(crate) to: ConfigValue<String>,
    pub(crate) concurrency: ConfigValue<u32>,
    pub(crate) max_deliveries: Option<ConfigValue<u32>>,
    pub(crate) keep_deduplication_records_for: Option<ConfigValue<Duration>>,
    pub(crate) redelivery_window: Option<ConfigValue<Duration>>,
}

impl ConsumerSection {
    pub(crate) fn read(table: &Table<'_>, databases: &[&str]) -> Option<Self> {
        table.reject_unknown_keys(&KEYS);
        let database = database(table, databases);
        let name = table.required("name", "\"billing\"");
        if let Some(name) = &name
            && let Err(error) = ConsumerName::new(name.as_str())
        {
            let what = format!("{} is not a valid consumer name", table.path("name"));
            table.report(table.line_of_value(name), what, error.to_string());
        }
        let to = queue(table, "to", "\"incoming-orders\"");
        if table.is_empty_or_missing("source") {
            table.report_missing(
                "source",
                "{ kind = \"rabbitmq\", url_env = \"AMQP_URL\", queue = \"orders\" }",
            );
        }
        let source = table.table("source").and_then(|table| EndpointSection::read(&table, Direction::Source));
        Some(Self {
            line: SectionLine(table.line()),
            concurrency: table.number("concurrency", "5").unwrap_or(ConfigValue::default(CONCURRENCY)),
            max_deliveries: table.number("max_deliveries", "20"),
            keep_deduplication_records_for: table.duration("keep_deduplication_records_for", "\"30d\""),
            redelivery_window: table.duration("redelivery_window", "\"14d\""),
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
        if let Some(max_deliveries) = &self.max_deliveries {
            settings.add(key("max_deliveries"), max_deliveries, max_deliveries.value);
        }
        for (last, duration) in [
            ("keep_deduplication_records_for", &self.keep_deduplication_records_for),
            ("redelivery_window", &self.redelivery_window),
        ] {
            if let Some(duration) = duration {
                settings.add(key(last), duration, format!("{:?}", duration.value));
            }
        }
    }
}
