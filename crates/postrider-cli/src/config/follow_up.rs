//! `[[follow_ups]]`: outbound calls that follow a change, made as webhooks.

use super::{
    endpoint::{EndpointSection, names},
    key,
    kind::Kind,
    origin::{ConfigValue, SectionLine},
    route::{check_template, database},
    setting::Settings,
    table::Table,
};
use postrider::{EventType, QueueName, ResolverName, follow_up};
use std::time::Duration;

/// The default timeout of a call, which is retried after it.
const TIMEOUT: Duration = Duration::from_secs(30);
/// 410 Gone: nothing is left to do.
const GONE: u32 = 410;

pub(super) const KEYS: [&str; 7] =
    ["database", "queue", "resolver", "operations", "address", "done_on", "complete_to"];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FollowUpSection {
    pub(crate) line: SectionLine,
    pub(crate) database: ConfigValue<String>,
    pub(crate) queue: ConfigValue<String>,
    pub(crate) resolver: ConfigValue<String>,
    pub(crate) operations: ConfigValue<Vec<String>>,
    /// The receiver of the calls.
    pub(crate) webhook: EndpointSection,
    pub(crate) address: ConfigValue<String>,
    /// Response statuses that count as success.
    pub(crate) done_on: ConfigValue<Vec<u32>>,
    pub(crate) complete_to: Option<ConfigValue<String>>,
}

impl FollowUpSection {
    pub(crate) fn read(table: &Table<'_>, databases: &[&str]) -> Option<Self> {
        let keys = key::webhook(TIMEOUT);
        table.reject_unknown_keys(&[&KEYS.map(str::to_owned), &names(&keys)[..]].concat());
        let database = database(table, databases);
        let queue = table
            .string("queue", "\"follow-ups\"")
            .unwrap_or(ConfigValue::default(follow_up::QUEUE.to_owned()));
        let complete_to = table.string("complete_to", "\"erased\"");
        for (key, name) in [("queue", Some(&queue)), ("complete_to", complete_to.as_ref())] {
            if let Some(name) = name
                && let Err(error) = QueueName::new(name.as_str())
            {
                let what = format!("{} is not a valid queue name", table.path(key));
                table.report(table.line_of_value(name), what, error.to_string());
            }
        }
        let resolver = table.required("resolver", "\"payments\"");
        if let Some(name) = &resolver
            && let Err(error) = ResolverName::new(name.as_str())
        {
            let what = format!("{} is not a valid resolver name", table.path("resolver"));
            table.report(table.line_of_value(name), what, error.to_string());
        }
        if table.is_empty_or_missing("operations") {
            table.report_missing("operations", "[\"erase\"]");
        }
        let operations = table.strings("operations", "[\"erase\"]");
        for operation in operations.iter().flat_map(|operations| &operations.value) {
            if let Err(error) = EventType::new(operation.as_str()) {
                let what = format!("{} has an invalid entry", table.path("operations"));
                table.report(table.line_of("operations"), what, error.to_string());
            }
        }
        let webhook = EndpointSection::read_keys(table, ConfigValue::default(Kind::Webhook), &keys);
        if !table.is_set("url") {
            table.report_missing("url", "\"https://payments.example/hooks\"");
        }
        let address =
            table.string("address", "\"{type}\"").unwrap_or(ConfigValue::default("{type}".to_owned()));
        check_template(table, &address);
        Some(Self {
            line: SectionLine(table.line()),
            done_on: table.numbers("done_on", "[404, 410]").unwrap_or(ConfigValue::default(vec![GONE])),
            database: database?,
            queue,
            resolver: resolver?,
            operations: operations?,
            webhook,
            address,
            complete_to,
        })
    }

    pub(crate) fn settings(&self, number: usize, settings: &mut Settings) {
        let key = |last: &str| format!("follow_ups.{number}.{last}");
        settings.text(key("database"), &self.database);
        settings.text(key("queue"), &self.queue);
        settings.text(key("resolver"), &self.resolver);
        settings.add(key("operations"), &self.operations, self.operations.value.clone());
        self.webhook.add_values(&format!("follow_ups.{number}"), settings);
        settings.text(key("address"), &self.address);
        settings.add(key("done_on"), &self.done_on, self.done_on.value.clone());
        if let Some(queue) = &self.complete_to {
            settings.text(key("complete_to"), queue);
        }
    }
}
