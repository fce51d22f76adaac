//! The whole file: its sections, and the rules between them.

use super::{
    consumer::CONSUMER,
    database::DATABASE,
    follow_up::FOLLOW_UP,
    key::Direction,
    key_type::{Key, TableType, ValueType, words},
    route::ROUTE,
    section::Section,
    table::Table,
    value::Mistake,
};
use crate::logs;
use std::collections::BTreeMap;

pub(super) const ROOT: TableType = TableType::Section { keys, check };

pub(super) const OTLP_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Sections of which the file has at least one.
pub(super) const ANY_OF: [&str; 3] = ["routes", "consumers", "follow_ups"];

const LOG_FORMAT_WORDS: [&str; 2] = words(&logs::FORMATS);

pub(super) fn keys() -> Vec<Key> {
    vec![
        Key::string("source", "\"/shop\"")
            .required()
            .rule(|_, source| {
                let invalid = |error: String| Mistake::new(error, "write source = \"/shop\"");
                postrider::cloudevents::check_source(source).map_err(|error| invalid(error.to_string()))
            })
            .about("The attribute `source` of the CloudEvents"),
        Key::new("databases", "[databases.shop], and below it url = \"shop.db\"", ValueType::NamedTables(DATABASE))
            .required()
            .about("The databases that messages are staged in, by name"),
        Key::new(
            "destinations",
            "[destinations.events], and below it kind = \"nats\"",
            ValueType::NamedTables(TableType::Endpoint(Direction::Destination)),
        )
        .about("Brokers, webhooks and standard output that messages are delivered to, by name"),
        Key::new("routes", "[[routes]]", ValueType::Tables(ROUTE))
            .about("Queues to deliver, each to one or more destinations. A queue has one route"),
        Key::new("consumers", "[[consumers]]", ValueType::Tables(CONSUMER))
            .about("Sources to receive from. A consumer stages each received message in a queue of the database, exactly once"),
        Key::new("follow_ups", "[[follow_ups]]", ValueType::Tables(FOLLOW_UP))
            .about("Resolvers of follow-ups: external calls, retried until they reach a final outcome"),
        Key::new("http", "{ listen = \"127.0.0.1:9464\" }", section(http))
            .about("The address that serves `/healthz`, `/readyz` and `/metrics`"),
        Key::new("log", "{ format = \"json\" }", section(log)).about("The log on stderr"),
        Key::new("otlp", "{ endpoint = \"http://localhost:4318\" }", section(otlp))
            .about("Traces, in builds with the feature `otlp`"),
    ]
}

const fn section(keys: fn() -> Vec<Key>) -> ValueType {
    ValueType::Table(TableType::Section { keys, check: |_, _| {} })
}

fn http() -> Vec<Key> {
    vec![
        Key::new("listen", "\"127.0.0.1:9464\"", ValueType::Listen)
            .default("\"127.0.0.1:9464\"")
            .overridden_by("--listen", "POSTRIDER_HTTP_LISTEN")
            .about("Address and port to listen on, or `off`"),
    ]
}

fn log() -> Vec<Key> {
    vec![
        Key::new("format", "\"human\"", ValueType::Choice(&LOG_FORMAT_WORDS))
            .default("\"human\"")
            .overridden_by("--log-format", "POSTRIDER_LOG_FORMAT")
            .about("Format of the log: for people, or one JSON object per line"),
    ]
}

fn otlp() -> Vec<Key> {
    vec![
        Key::new("endpoint", "\"http://localhost:4318\"", ValueType::Url)
            .overridden_by("--otlp", OTLP_VARIABLE)
            .about("URL of the OpenTelemetry collector to export traces to (OTLP over HTTP)"),
    ]
}

fn check(table: &Table<'_>, root: &mut Section) {
    if ANY_OF.iter().all(|section| table.is_empty(section)) {
        let help = "write [[routes]], and below it queue and to; or [[consumers]], or [[follow_ups]]";
        table.report(1, "the file defines no routes, consumers or follow-ups", help);
    }
    // A queue has one route, which may have many destinations.
    reject_duplicates(table, root, "routes", &["database", "queue"], |queue| {
        (format!("is a second route of queue {queue}"), "add its destinations to the `to` of the first route")
    });
    // Deduplication records belong to a name: two consumers of one name would take each other's messages for duplicates.
    reject_duplicates(table, root, "consumers", &["database", "name"], |name| {
        (format!("is a second consumer named {name}"), "choose a name other than that of the consumer")
    });
    // A resolver has one receiver.
    reject_duplicates(table, root, "follow_ups", &["database", "queue", "resolver"], |resolver| {
        (format!("is a second section for resolver {resolver}"), "add its operations to the section")
    });
}

/// Reports every table of a list whose values of these keys an earlier one has already. `describe` returns the problem with the value
/// of the last key, and the advice, which is followed by the line of the first table.
fn reject_duplicates(
    table: &Table<'_>,
    root: &Section,
    list: &str,
    keys: &[&str],
    describe: impl Fn(&str) -> (String, &'static str),
) {
    let mut seen = BTreeMap::new();
    for (number, section) in root.tables(list) {
        let identity: Option<Vec<_>> = keys.iter().map(|key| section.text(key)).collect();
        let Some(identity) = identity else { continue };
        let names: Vec<_> = identity.iter().map(|name| name.value.clone()).collect();
        let Some(last) = identity.last() else { continue };
        let (first, line) = *seen.entry(names).or_insert((number, section.line.0));
        if first != number {
            let (what, help) = describe(last);
            let line_of_value = last.line().unwrap_or(section.line.0);
            table.report(line_of_value, format!("{list}.{number} {what}"), format!("{help} in line {line}"));
        }
    }
}
