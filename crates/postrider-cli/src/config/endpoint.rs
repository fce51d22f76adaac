//! A broker, a webhook or standard output: `[destinations.…]`, or the `source = { … }` of a consumer. The kind determines the keys.

use super::{
    key::{Direction, Key, MUTUALLY_EXCLUSIVE, REQUIRED_TOGETHER, ValueType, keys},
    kind::{KINDS, Kind},
    origin::{ConfigValue, SectionLine},
    secret::Secret,
    setting::Settings,
    table::Table,
};
use crate::rate::Rate;
use postrider::Invalid;
use std::{collections::BTreeMap, time::Duration};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndpointSection {
    /// Its line in the file, for error messages.
    pub(crate) line: SectionLine,
    pub(crate) kind: ConfigValue<Kind>,
    values: BTreeMap<&'static str, Value>,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    String(ConfigValue<String>),
    Flag(ConfigValue<bool>),
    Number(ConfigValue<u32>),
    Duration(ConfigValue<Duration>),
    Rate(ConfigValue<Rate>),
    Strings(ConfigValue<Vec<String>>),
    Secret(ConfigValue<Secret>),
}

impl EndpointSection {
    pub(crate) fn read(table: &Table<'_>, direction: Direction) -> Option<Self> {
        if !table.has("kind") {
            table.report_missing("kind", "\"webhook\"");
            return None;
        }
        // Standard output and SNS topics are destinations only: an SNS topic delivers to SQS queues.
        let is_destination_only = |kind| matches!(kind, Kind::Stdout | Kind::Sns);
        let kinds: Vec<_> = KINDS
            .into_iter()
            .filter(|(_, kind)| direction == Direction::Destination || !is_destination_only(*kind))
            .collect();
        let kind = table.choice("kind", &kinds)?;
        kind.check_built(table);
        let keys = keys(kind.value, direction);
        table.reject_unknown_keys(&[&["kind".to_owned()], &names(&keys)[..]].concat());
        Some(Self::read_keys(table, kind, &keys))
    }

    /// Reads the keys of this kind from a table that may have other keys, too.
    pub(super) fn read_keys(table: &Table<'_>, kind: ConfigValue<Kind>, keys: &[Key]) -> Self {
        let values = keys.iter().filter_map(|key| Some((key.name, Value::read(table, key)?))).collect();
        for group in REQUIRED_TOGETHER {
            let missing = group.iter().filter(|name| !table.is_set(name));
            if group.iter().any(|name| table.is_set(name)) {
                missing.for_each(|name| report_incomplete(table, keys, name, group));
            }
        }
        for group in MUTUALLY_EXCLUSIVE {
            let mut set = group.iter().filter(|name| table.is_set(name));
            if let (Some(first), Some(second)) = (set.next(), set.next()) {
                let what = format!("{} conflicts with {first}", table.path(second));
                table.report(table.line(), what, format!("keep one of {}", group.join(", ")));
            }
        }
        Self { line: SectionLine(table.line()), kind, values }
    }

    pub(crate) fn string(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Value::String(found) => Some(found.as_str()),
            _ => None,
        }
    }

    pub(crate) fn required(&self, key: &'static str) -> Result<&str, Invalid> {
        self.string(key).ok_or_else(|| Invalid::rule(key, "is missing"))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.values.get(key), Some(Value::Flag(flag)) if flag.value)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn number(&self, key: &str) -> Option<u32> {
        match self.values.get(key)? {
            Value::Number(found) => Some(found.value),
            _ => None,
        }
    }

    pub(crate) fn duration(&self, key: &str) -> Option<Duration> {
        match self.values.get(key)? {
            Value::Duration(found) => Some(found.value),
            _ => None,
        }
    }

    pub(crate) fn rate(&self, key: &str) -> Option<Rate> {
        match self.values.get(key)? {
            Value::Rate(found) => Some(found.value),
            _ => None,
        }
    }

    pub(crate) fn strings(&self, key: &str) -> &[String] {
        match self.values.get(key) {
            Some(Value::Strings(found)) => &found.value,
            _ => &[],
        }
    }

    pub(crate) fn secret(&self, key: &str) -> Option<&Secret> {
        match self.values.get(key)? {
            Value::Secret(found) => Some(&found.value),
            _ => None,
        }
    }

    pub(crate) fn settings(&self, section: &str, settings: &mut Settings) {
        settings.text(format!("{section}.kind"), &self.kind);
        self.add_values(section, settings);
    }

    pub(super) fn add_values(&self, section: &str, settings: &mut Settings) {
        for (name, value) in &self.values {
            let key = format!("{section}.{name}");
            match value {
                Value::String(found) => settings.text(key, found),
                Value::Flag(found) => settings.add(key, found, found.value),
                Value::Number(found) => settings.add(key, found, found.value),
                Value::Duration(found) => settings.add(key, found, format!("{:?}", found.value)),
                Value::Rate(found) => settings.text(key, found),
                Value::Strings(found) => settings.add(key, found, found.value.clone()),
                Value::Secret(found) => settings.text(key, found),
            }
        }
    }
}

impl Value {
    fn read(table: &Table<'_>, key: &Key) -> Option<Self> {
        let Key { name, example, .. } = *key;
        if key.is_required && !table.is_set(name) {
            table.report_missing(name, example);
        }
        match key.value_type {
            ValueType::String => table.string(name, example).map(Self::String),
            ValueType::Choice(words) => {
                let choices: Vec<_> = words.iter().map(|word| (*word, *word)).collect();
                table.choice(name, &choices).map(|found| Self::String(found.map(str::to_owned)))
            }
            ValueType::Flag => Some(Self::Flag(table.flag(name).unwrap_or(ConfigValue::default(false)))),
            ValueType::Number => table.number(name, example).map(Self::Number),
            ValueType::Duration(default) => {
                Some(Self::Duration(table.duration(name, example).unwrap_or(ConfigValue::default(default))))
            }
            ValueType::Rate => table.rate(name, example).map(Self::Rate),
            ValueType::Strings => {
                Some(Self::Strings(table.strings(name, example).unwrap_or(ConfigValue::default(Vec::new()))))
            }
            ValueType::Url => table.url(name, example).map(Self::Secret),
            ValueType::Secret => table.secret(name).map(Self::Secret),
        }
    }
}

/// All names under which these keys may be set.
pub(super) fn names(keys: &[Key]) -> Vec<String> {
    keys.iter().flat_map(Key::names).collect()
}

/// Reports that `name` is missing from a group of keys that require each other, if this kind has it at all.
fn report_incomplete(table: &Table<'_>, keys: &[Key], name: &str, group: &[&str]) {
    if let Some(key) = keys.iter().find(|key| key.name == name) {
        let what = format!("{} is missing: {} require each other", table.path(name), group.join(", "));
        let help = match key.names().first() {
            Some(secret) if secret != name => format!("write {secret} = {:?}", name.to_uppercase()),
            _ => format!("write {name} = {}", key.example),
        };
        table.report(table.line(), what, help);
    }
}
