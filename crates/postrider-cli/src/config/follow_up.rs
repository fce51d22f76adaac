//! `[[follow_ups]]`: calls that follow a change, made as webhooks.

use super::{
    origin::{Found, Line},
    route::{database, template},
    secret::Secret,
    setting::Settings,
    table::Table,
};
use postrider::{EventType, QueueName, ResolverName, follow_up};
use std::time::Duration;

/// A call that takes longer is made again.
const TIMEOUT: Duration = Duration::from_secs(30);
/// It says itself that there is nothing left to do.
const GONE: u32 = 410;

pub(super) const KEYS: [&str; 16] = [
    "database",
    "queue",
    "resolver",
    "operations",
    "url",
    "url_env",
    "url_file",
    "address",
    "secret",
    "secret_env",
    "secret_file",
    "allow_http",
    "allow_networks",
    "timeout",
    "done_on",
    "complete_to",
];

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FollowUpSection {
    pub(crate) line: Line,
    pub(crate) database: Found<String>,
    pub(crate) queue: Found<String>,
    pub(crate) resolver: Found<String>,
    pub(crate) operations: Found<Vec<String>>,
    pub(crate) url: Found<Secret>,
    pub(crate) address: Found<String>,
    pub(crate) secret: Option<Found<Secret>>,
    pub(crate) allow_http: Found<bool>,
    pub(crate) allow_networks: Found<Vec<String>>,
    pub(crate) timeout: Found<Duration>,
    /// Statuses that mean that nothing is left to do.
    pub(crate) done_on: Found<Vec<u32>>,
    pub(crate) complete_to: Option<Found<String>>,
}

impl FollowUpSection {
    pub(crate) fn read(table: &Table<'_>, databases: &[&str]) -> Option<Self> {
        table.knows(&KEYS);
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
        let example = "\"https://payments.example/hooks\"";
        let url = table.secret("url", example);
        if !["url", "url_env", "url_file"].iter().any(|key| table.has(key)) {
            table.missing("url", example);
        }
        let address = table.text("address", "\"{type}\"").unwrap_or(Found::default("{type}".to_owned()));
        template(table, &address);
        Some(Self {
            line: Line(table.line()),
            secret: table.secret("secret", "\"whsec_…\""),
            allow_http: table.flag("allow_http").unwrap_or(Found::default(false)),
            allow_networks: table
                .texts("allow_networks", "[\"10.0.0.0/8\"]")
                .unwrap_or(Found::default(Vec::new())),
            timeout: table.duration("timeout", "\"30s\"").unwrap_or(Found::default(TIMEOUT)),
            done_on: table.numbers("done_on", "[404, 410]").unwrap_or(Found::default(vec![GONE])),
            database: database?,
            queue,
            resolver: resolver?,
            operations: operations?,
            url: url?,
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
        settings.text(key("url"), &self.url);
        settings.text(key("address"), &self.address);
        if let Some(secret) = &self.secret {
            settings.text(key("secret"), secret);
        }
        settings.add(key("allow_http"), &self.allow_http, self.allow_http.value);
        settings.add(key("allow_networks"), &self.allow_networks, self.allow_networks.value.clone());
        settings.add(key("timeout"), &self.timeout, format!("{:?}", self.timeout.value));
        settings.add(key("done_on"), &self.done_on, self.done_on.value.clone());
        if let Some(queue) = &self.complete_to {
            settings.text(key("complete_to"), queue);
        }
    }
}
