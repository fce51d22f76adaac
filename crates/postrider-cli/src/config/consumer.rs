//! `[[consumers]]`: a source, and the queue of the database that received messages are staged in.

use super::{
    endpoint::EndpointSection,
    key::Direction,
    key_type::{Key, TableType, ValueType},
    origin::ConfigValue,
    route::queue_name,
    section::Section,
    value::Mistake,
};
use postrider::ConsumerName;
use std::ops::Deref;

pub(super) const CONSUMER: TableType = TableType::Section { keys, check: |_, _| {} };

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ConsumerSection {
    pub(crate) database: ConfigValue<String>,
    pub(crate) name: ConfigValue<String>,
    pub(crate) source: EndpointSection,
    pub(crate) to: ConfigValue<String>,
    section: Section,
}

fn keys() -> Vec<Key> {
    vec![
        Key::new("database", "\"shop\"", ValueType::Reference("databases"))
            .about("Database to stage received messages in; optional if there is only one"),
        Key::string("name", "\"billing\"")
            .required()
            .rule(|path, name| {
                let invalid = |error| Mistake::new(format!("{path} is not a valid consumer name"), error);
                ConsumerName::new(name).map(drop).map_err(|error| invalid(error.to_string()))
            })
            .about("Owner of the deduplication records. Two consumers with different names each get every message"),
        Key::new(
            "source",
            "{ kind = \"rabbitmq\", url_env = \"AMQP_URL\", queue = \"orders\" }",
            ValueType::Table(TableType::Endpoint(Direction::Source)),
        )
        .required()
        .about("Source to receive from"),
        Key::string("to", "\"incoming-orders\"")
            .required()
            .rule(queue_name)
            .about("Queue of the database that messages are staged in"),
        Key::new("concurrency", "5", ValueType::Number)
            .default("5")
            .about("Concurrent transactions; 1 is enough on SQLite"),
        Key::new("max_deliveries", "20", ValueType::Number)
            .about("A message that is delivered more often becomes a dead letter of `inbox.<name>`, and is not staged; unlimited by default"),
        Key::string("deduplicate_by", "\"header:idempotency-key\"")
            .rule(|path, text| match text.strip_prefix("header:") {
                Some(name) if !name.is_empty() => Ok(()),
                _ => Err(Mistake::new(format!("{path} is not a header"), "name one: header:idempotency-key".to_owned())),
            })
            .about("Header whose value identifies a message, instead of the id of the event or of the protocol. Messages without the header keep their own id"),
        Key::new("keep_deduplication_records_for", "\"30d\"", ValueType::Duration)
            .renamed_from("keep_marks_for")
            .about("Retention of deduplication records; a value that is too short is rejected. By default the redelivery window of the broker, plus a day"),
        Key::new("redelivery_window", "\"14d\"", ValueType::Duration)
            .renamed_from("redelivered_within")
            .about("How long the broker may redeliver a message, for brokers that cannot report it or keep messages without limit"),
    ]
}

impl ConsumerSection {
    pub(super) fn new(section: Section) -> Option<Self> {
        Some(Self {
            database: section.text("database")?,
            name: section.text("name")?,
            source: EndpointSection::new(section.table("source")?.clone())?,
            to: section.text("to")?,
            section,
        })
    }
}

impl Deref for ConsumerSection {
    type Target = Section;

    fn deref(&self) -> &Section {
        &self.section
    }
}
