//! `[[follow_ups]]`: calls that follow a change, made as webhooks.

use super::{
    key,
    kind::Kind,
    origin::{Found, Line},
    place::{Place, names},
    route::{database, template},
    setting::Settings,
    table::Table,
};
use postrider::{EventType, QueueName, ResolverName, follow_up};
use std::time::Duration;

/// A call that takes longer is made again.
const TIMEOUT: Duration = Duration::from_secs(30);
/// It says itself that there is nothing left to do.
const GONE: u32 = 410;

pub(super) const KEYS: [&str; 7] =
    ["database", "queue", "resolver", "operations", "address", "done_on", "complete_to"];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FollowUpSection {
    pub(crate) line: Line,
    pub(crate) database: Found<String>,
    pub(crate) queue: Found<String>,
    pub(crate) resolver: Found<String>,
    pub(crate) operations: Found<Vec<String>>,
    /// Who is called.
    pub(crate) webhook: Place,
    pub(crate) address: Found<String>,
    /// Statuses that mean that nothing is left to do.
    pub(crate) done_on: Found<Vec<u32>>,
    pub(crate) complete_to: Option<Found<String>>,
}

impl FollowUpSection {
    pub(crate) fn read(table: &Table<'_>, databases: &[&str]) -> Option<Self> {
        let keys = key::webhook(TIMEOUT);
        table.knows(&[&KEYS.map(str::to_owned), &names(&keys)[..]].concat());
        let database = database(table, databases);
        let queue =
            table.text("queue", "\"follow-ups\"").unwrap_or(Found::default(follow_up::QUEUE.to_owned()));
        let complete_to = table.text("complete_to", "\"erased\"");
        for (key, name) in [("queue", Some(&queue)), ("complete_to", complete_to.as_ref())] {
            if let Some(name) = name
                && let Err(error) = QueueName::new(name.as_str())
            {
                let what = format!("{} is no name of a queue", table.path(key));
                table.wrong(table.line_at(name), what, error.to_string());
            }
        }
        let resolver = table.required("resolver", "\"payments\"");
        if let Some(name) = &resolver
            && let Err(error) = ResolverName::new(name.as_str())
        {
            let what = format!("{} is no name of a resolver", table.path("resolver"));
            table.wrong(table.line_at(name), what, error.to_string());
        }
        if table.lacks("operations") {
            table.missing("operations", "[\"erase\"]");
        }
        let operations = table.texts("operations", "[\"erase\"]");
        for operation in operations.iter().flat_map(|operations| &operations.value) {
            if let Err(error) = EventType::new(operation.as_str()) {
                let what = format!("{} has one that cannot be", table.path("operations"));
                table.wrong(table.line_of("operations"), what, error.to_string());
            }
        }
        let webhook = Place::of(table, Found::default(Kind::Webhook), &keys);
        if !table.is_given("url") {
            table.missing("url", "\"https://payments.example/hooks\"");
        }
        let address = table.text("address", "\"{type}\"").unwrap_or(Found::default("{type}".to_owned()));
        template(table, &address);
        Some(Self {
            line: Line(table.line()),
            done_on: table.numbers("done_on", "[404, 410]").unwrap_or(Found::default(vec![GONE])),
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
        self.webhook.values_in(&format!("follow_ups.{number}"), settings);
        settings.text(key("address"), &self.address);
        settings.add(key("done_on"), &self.done_on, self.done_on.value.clone());
        if let Some(queue) = &self.complete_to {
            settings.text(key("complete_to"), queue);
        }
    }
}
