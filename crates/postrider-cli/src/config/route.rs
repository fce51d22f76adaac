//! `[[routes]]`: which queue goes where.

use super::{
    origin::{Found, Line},
    pattern::TypePattern,
    retry::RetrySection,
    setting::Settings,
    table::Table,
};
use postrider::{Format, OnFailure, Ordering, QueueName, QueuePolicy, Template};
use std::{collections::BTreeMap, time::Duration};

/// As many as a route of a relay has unless said otherwise.
const CONCURRENCY: u32 = 2_000;

const FORMATS: [(&str, Format); 4] = [
    ("binary", Format::Binary),
    ("structured", Format::Structured),
    ("plain", Format::Plain),
    ("debezium", Format::Debezium),
];

const ORDERS: [(&str, Ordering); 4] = [
    ("unordered", Ordering::Unordered),
    ("block", Ordering::ByKey(OnFailure::Block)),
    ("park", Ordering::ByKey(OnFailure::Park)),
    ("skip", Ordering::ByKey(OnFailure::Skip)),
];

pub(super) const KEYS: [&str; 12] = [
    "database",
    "queue",
    "to",
    "format",
    "ordered",
    "keep_for",
    "dead_letters",
    "fair_by_tenant",
    "concurrency",
    "max_attempts",
    "retry",
    "keep_error_text",
];

const TO: &str = "[{ destination = \"events\", address = \"orders.{type}\" }]";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RouteSection {
    /// Where it stands, for whoever cannot build it.
    pub(crate) line: Line,
    pub(crate) database: Found<String>,
    pub(crate) queue: Found<String>,
    pub(crate) to: Vec<ToSection>,
    pub(crate) format: Found<Format>,
    pub(crate) ordered: Found<Ordering>,
    pub(crate) keep_for: Option<Found<Duration>>,
    /// Whether what failed for good is kept.
    pub(crate) dead_letters: Found<bool>,
    /// Whether tenants take turns.
    pub(crate) fair_by_tenant: Found<bool>,
    pub(crate) concurrency: Found<u32>,
    pub(crate) retry: RetrySection,
    /// Whether what a destination says of a failure is kept, and not only its kind.
    pub(crate) keep_error_text: Found<bool>,
}

/// One place that a route goes to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToSection {
    pub(crate) destination: Found<String>,
    pub(crate) address: Found<String>,
    /// Only messages of these types go there.
    pub(crate) types: Option<Found<Vec<TypePattern>>>,
}

impl RouteSection {
    /// `databases` and `destinations` are the names that it can refer to.
    pub(crate) fn read(table: &Table<'_>, databases: &[&str], destinations: &[&str]) -> Option<Self> {
        table.knows(&KEYS);
        let database = database(table, databases);
        let queue = queue(table, "queue", "\"orders\"");
        let to = table.list("to", &format!("to = {TO}"));
        if table.lacks("to") {
            table.missing("to", TO);
        }
        let to: Vec<_> = to.iter().flatten().map(|to| ToSection::read(to, destinations)).collect();
        let route = Self {
            line: Line(table.line()),
            format: table.word("format", &FORMATS).unwrap_or(Found::default(Format::Binary)),
            ordered: table.word("ordered", &ORDERS).unwrap_or(Found::default(Ordering::Unordered)),
            keep_for: table.duration("keep_for", "\"7d\""),
            concurrency: table.number("concurrency", "10").unwrap_or(Found::default(CONCURRENCY)),
            dead_letters: table.flag("dead_letters").unwrap_or(Found::default(true)),
            fair_by_tenant: table.flag("fair_by_tenant").unwrap_or(Found::default(false)),
            retry: RetrySection::read(table),
            keep_error_text: table.flag("keep_error_text").unwrap_or(Found::default(false)),
            database: database?,
            queue: queue?,
            to: to.into_iter().collect::<Option<_>>()?,
        };
        if let Some(Err(error)) = route.policy().map(|policy| policy.check()) {
            table.wrong(table.line(), format!("{}: {error}", table.name()), "leave one of them out");
        }
        let mut seen = BTreeMap::new();
        for to in &route.to {
            if let Some(line) = seen.insert(&*to.destination, table.line_at(&to.destination)) {
                let what = format!("{} goes to {} twice", table.name(), *to.destination);
                table.wrong(line, what, "leave one out, or give the destination a second name");
            }
        }
        Some(route)
    }

    /// What holds for its queue, if the file says so.
    pub(crate) fn policy(&self) -> Option<QueuePolicy> {
        let policy = QueuePolicy {
            ordering: self.ordered.value,
            keep_for: self.keep_for.as_ref().map(|keep_for| keep_for.value),
            dead_letters: self.dead_letters.value,
            fair_by_tenant: self.fair_by_tenant.value,
        };
        (policy != QueuePolicy::default()).then_some(policy)
    }

    pub(crate) fn settings(&self, number: usize, settings: &mut Settings) {
        let key = |last: &str| format!("routes.{number}.{last}");
        settings.text(key("database"), &self.database);
        settings.text(key("queue"), &self.queue);
        for (index, to) in self.to.iter().enumerate() {
            settings.text(key(&format!("to.{}.destination", index + 1)), &to.destination);
            settings.text(key(&format!("to.{}.address", index + 1)), &to.address);
            if let Some(types) = &to.types {
                let shown: Vec<_> = types.iter().map(ToString::to_string).collect();
                settings.add(key(&format!("to.{}.types", index + 1)), types, shown);
            }
        }
        settings.add(key("format"), &self.format, word(&FORMATS, &self.format));
        settings.add(key("ordered"), &self.ordered, word(&ORDERS, &self.ordered));
        if let Some(keep_for) = &self.keep_for {
            settings.add(key("keep_for"), keep_for, format!("{:?}", keep_for.value));
        }
        settings.add(key("dead_letters"), &self.dead_letters, self.dead_letters.value);
        settings.add(key("fair_by_tenant"), &self.fair_by_tenant, self.fair_by_tenant.value);
        settings.add(key("concurrency"), &self.concurrency, self.concurrency.value);
        self.retry.settings(&format!("routes.{number}"), settings);
        settings.add(key("keep_error_text"), &self.keep_error_text, self.keep_error_text.value);
    }
}

impl ToSection {
    fn read(table: &Table<'_>, destinations: &[&str]) -> Option<Self> {
        table.knows(&["destination", "address", "types"]);
        let destination = table.required("destination", "\"events\"");
        if let Some(name) = &destination
            && !destinations.contains(&name.as_str())
        {
            table.unknown("destination", name, destinations);
        }
        let address = table.required("address", "\"orders.{type}\"")?;
        template(table, &address);
        Some(Self { destination: destination?, address, types: types(table) })
    }
}

fn types(table: &Table<'_>) -> Option<Found<Vec<TypePattern>>> {
    let types = table.texts("types", "[\"order.*\"]")?;
    let patterns: Result<Vec<_>, _> = types.iter().map(|text| TypePattern::parse(text)).collect();
    match patterns {
        Ok(patterns) if !patterns.is_empty() => Some(types.map(|_| patterns)),
        Ok(_) => {
            let what = format!("{} is empty, so nothing would go there", table.path("types"));
            table.wrong(table.line_at(&types), what, "leave it out, or name a type such as \"order.*\"");
            None
        }
        Err(help) => {
            let what = format!("{} has one that cannot be", table.path("types"));
            table.wrong(table.line_at(&types), what, help);
            None
        }
    }
}

/// Whether an address can be made of it.
pub(super) fn template(table: &Table<'_>, address: &Found<String>) {
    if let Err(error) = Template::parse(address.as_str()) {
        let help =
            "holes are {queue}, {type}, {key} and {tenant}, with {tenant|nobody} for what is not there";
        table.wrong(table.line_at(address), format!("{}: {error}", table.path("address")), help);
    }
}

pub(super) fn database(table: &Table<'_>, databases: &[&str]) -> Option<Found<String>> {
    match (table.text("database", "\"shop\""), databases) {
        (Some(name), _) if databases.contains(&name.as_str()) => Some(name),
        (Some(name), _) => {
            table.unknown("database", &name, databases);
            None
        }
        (None, [only]) if !table.has("database") => Some(Found::default((*only).to_owned())),
        (None, [first, ..]) if !table.has("database") => {
            table.missing("database", &format!("{first:?}"));
            None
        }
        (None, _) => None,
    }
}

pub(super) fn queue(table: &Table<'_>, key: &str, example: &str) -> Option<Found<String>> {
    let queue = table.required(key, example)?;
    if let Err(error) = QueueName::new(queue.as_str()) {
        let what = format!("{} is no name of a queue", table.path(key));
        table.wrong(table.line_at(&queue), what, error.to_string());
    }
    Some(queue)
}

pub(super) fn word<T: PartialEq>(words: &[(&'static str, T)], meaning: &T) -> &'static str {
    words.iter().find(|(_, each)| each == meaning).map_or("", |(word, _)| word)
}
