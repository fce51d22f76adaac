//! `[[routes]]`: the destinations of a queue.

use super::{
    origin::{ConfigValue, SectionLine},
    pattern::TypePattern,
    retry::RetrySection,
    setting::Settings,
    table::Table,
};
use postrider::{Format, OnFailure, Ordering, QueueName, QueuePolicy, Template};
use std::{collections::BTreeMap, time::Duration};

/// The relay's default.
const CONCURRENCY: u32 = 2_000;

const FORMATS: [(&str, Format); 4] = [
    ("binary", Format::Binary),
    ("structured", Format::Structured),
    ("plain", Format::Plain),
    ("debezium", Format::Debezium),
];

const ORDERINGS: [(&str, Ordering); 4] = [
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

const TO_EXAMPLE: &str = "[{ destination = \"events\", address = \"orders.{type}\" }]";

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RouteSection {
    /// Its line in the file, for error messages.
    pub(crate) line: SectionLine,
    pub(crate) database: ConfigValue<String>,
    pub(crate) queue: ConfigValue<String>,
    pub(crate) to: Vec<ToSection>,
    pub(crate) format: ConfigValue<Format>,
    pub(crate) ordered: ConfigValue<Ordering>,
    pub(crate) keep_for: Option<ConfigValue<Duration>>,
    /// Whether messages that fail permanently are kept.
    pub(crate) dead_letters: ConfigValue<bool>,
    /// Whether claims alternate between tenants.
    pub(crate) fair_by_tenant: ConfigValue<bool>,
    pub(crate) concurrency: ConfigValue<u32>,
    pub(crate) retry: RetrySection,
    /// Whether the full error text of a destination is kept, and not only the kind of the error.
    pub(crate) keep_error_text: ConfigValue<bool>,
}

/// One destination of a route.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToSection {
    pub(crate) destination: ConfigValue<String>,
    pub(crate) address: ConfigValue<String>,
    /// If set, only messages of these types are sent there.
    pub(crate) types: Option<ConfigValue<Vec<TypePattern>>>,
}

impl RouteSection {
    /// `databases` and `destinations` are the names that the file defines.
    pub(crate) fn read(table: &Table<'_>, databases: &[&str], destinations: &[&str]) -> Option<Self> {
        table.reject_unknown_keys(&KEYS);
        let database = database(table, databases);
        let queue = queue(table, "queue", "\"orders\"");
        let to = table.list("to", &format!("to = {TO_EXAMPLE}"));
        if table.is_empty_or_missing("to") {
            table.report_missing("to", TO_EXAMPLE);
        }
        let to: Vec<_> = to.iter().flatten().map(|to| ToSection::read(to, destinations)).collect();
        let route = Self {
            line: SectionLine(table.line()),
            format: table.choice("format", &FORMATS).unwrap_or(ConfigValue::default(Format::Binary)),
            ordered: table.choice("ordered", &ORDERINGS).unwrap_or(ConfigValue::default(Ordering::Unordered)),
            keep_for: table.duration("keep_for", "\"7d\""),
            concurrency: table.number("concurrency", "10").unwrap_or(ConfigValue::default(CONCURRENCY)),
            dead_letters: table.flag("dead_letters").unwrap_or(ConfigValue::default(true)),
            fair_by_tenant: table.flag("fair_by_tenant").unwrap_or(ConfigValue::default(false)),
            retry: RetrySection::read(table),
            keep_error_text: table.flag("keep_error_text").unwrap_or(ConfigValue::default(false)),
            database: database?,
            queue: queue?,
            to: to.into_iter().collect::<Option<_>>()?,
        };
        if let Some(Err(error)) = route.policy().map(|policy| policy.check()) {
            table.report(table.line(), format!("{}: {error}", table.name()), "remove one of them");
        }
        let mut seen = BTreeMap::new();
        for to in &route.to {
            if let Some(line) = seen.insert(&*to.destination, table.line_of_value(&to.destination)) {
                let what = format!("{} lists destination {} twice", table.name(), *to.destination);
                table.report(line, what, "remove one of them, or define the destination under a second name");
            }
        }
        Some(route)
    }

    /// The queue's policy, if the file sets one.
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
                let printed: Vec<_> = types.iter().map(ToString::to_string).collect();
                settings.add(key(&format!("to.{}.types", index + 1)), types, printed);
            }
        }
        settings.add(key("format"), &self.format, name_of(&FORMATS, &self.format));
        settings.add(key("ordered"), &self.ordered, name_of(&ORDERINGS, &self.ordered));
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
        table.reject_unknown_keys(&["destination", "address", "types"]);
        let destination = table.required("destination", "\"events\"");
        if let Some(name) = &destination
            && !destinations.contains(&name.as_str())
        {
            table.report_unknown_name("destination", name, destinations);
        }
        let address = table.required("address", "\"orders.{type}\"")?;
        check_template(table, &address);
        Some(Self { destination: destination?, address, types: types(table) })
    }
}

fn types(table: &Table<'_>) -> Option<ConfigValue<Vec<TypePattern>>> {
    let types = table.strings("types", "[\"order.*\"]")?;
    let patterns: Result<Vec<_>, _> = types.iter().map(|text| TypePattern::parse(text)).collect();
    match patterns {
        Ok(patterns) if !patterns.is_empty() => Some(types.map(|_| patterns)),
        Ok(_) => {
            let what = format!("{} is empty: no message would match", table.path("types"));
            table.report(table.line_of_value(&types), what, "remove it, or list a type such as \"order.*\"");
            None
        }
        Err(help) => {
            let what = format!("{} has an invalid entry", table.path("types"));
            table.report(table.line_of_value(&types), what, help);
            None
        }
    }
}

/// Reports an invalid address template.
pub(super) fn check_template(table: &Table<'_>, address: &ConfigValue<String>) {
    if let Err(error) = Template::parse(address.as_str()) {
        let help =
            "placeholders are {queue}, {type}, {key} and {tenant}; {tenant|nobody} supplies a default value";
        table.report(table.line_of_value(address), format!("{}: {error}", table.path("address")), help);
    }
}

pub(super) fn database(table: &Table<'_>, databases: &[&str]) -> Option<ConfigValue<String>> {
    match (table.string("database", "\"shop\""), databases) {
        (Some(name), _) if databases.contains(&name.as_str()) => Some(name),
        (Some(name), _) => {
            table.report_unknown_name("database", &name, databases);
            None
        }
        (None, [only]) if !table.has("database") => Some(ConfigValue::default((*only).to_owned())),
        (None, [first, ..]) if !table.has("database") => {
            table.report_missing("database", &format!("{first:?}"));
            None
        }
        (None, _) => None,
    }
}

pub(super) fn queue(table: &Table<'_>, key: &str, example: &str) -> Option<ConfigValue<String>> {
    let queue = table.required(key, example)?;
    if let Err(error) = QueueName::new(queue.as_str()) {
        let what = format!("{} is not a valid queue name", table.path(key));
        table.report(table.line_of_value(&queue), what, error.to_string());
    }
    Some(queue)
}

/// The name of a value among these choices.
pub(super) fn name_of<T: PartialEq>(choices: &[(&'static str, T)], value: &T) -> &'static str {
    choices.iter().find(|(_, each)| each == value).map_or("", |(word, _)| word)
}
