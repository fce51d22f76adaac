//! A section of the file: the values of its keys, read and printed by the data of the keys.

use super::{
    key::{MUTUALLY_EXCLUSIVE, REQUIRED_TOGETHER, keys},
    key_type::{Key, TableType, ValueType},
    kind::{self, KINDS},
    origin::{ConfigValue, Origin, SectionLine},
    secret::Secret,
    setting::Settings,
    table::Table,
    value::Value,
};
use crate::rate::Rate;
use postrider::Invalid;
use std::time::Duration;
use toml::de::DeValue;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Section {
    /// Its line in the file, for error messages.
    pub(crate) line: SectionLine,
    values: Vec<(&'static str, ConfigValue<Value>)>,
}

impl Section {
    /// Reads the keys of this type of table, and reports every problem.
    pub(super) fn read(table: &Table<'_>, table_type: TableType) -> Self {
        let mut section = Self { line: SectionLine(table.line()), values: Vec::new() };
        match table_type {
            TableType::Section { keys, check } => {
                section.read_keys(table, &keys());
                check(table, &mut section);
            }
            TableType::Endpoint(direction) => {
                let kind = kind::key(direction).read(table);
                let Some(Value::String(name)) = kind.map(|kind| kind.value) else { return section };
                let Some((_, kind)) = KINDS.iter().find(|(word, _)| *word == name) else { return section };
                kind.check_built(table);
                section.read_keys(table, &keys(*kind, direction));
                section.values.sort_by_key(|(name, _)| (*name != "kind", *name));
            }
        }
        section
    }

    fn read_keys(&mut self, table: &Table<'_>, keys: &[Key]) {
        table.reject_unknown_keys(keys);
        self.values.extend(keys.iter().filter_map(|key| Some((key.name, key.read(table)?))));
        for group in REQUIRED_TOGETHER {
            let missing = keys.iter().filter(|key| group.contains(&key.name) && !table.is_set(key.name));
            if group.iter().any(|name| table.is_set(name)) {
                missing.for_each(|key| report_incomplete(table, key, group));
            }
        }
        for group in MUTUALLY_EXCLUSIVE {
            let mut set = group.iter().filter(|name| table.is_set(name));
            if let (Some(first), Some(second)) = (set.next(), set.next()) {
                let what = format!("{} conflicts with {first}", table.path(second));
                table.report(table.line(), what, format!("keep one of {}", group.join(", ")));
            }
        }
    }

    /// Replaces the value of a key.
    pub(super) fn set(&mut self, key: &'static str, value: ConfigValue<Value>) {
        self.remove(key);
        self.values.push((key, value));
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<ConfigValue<Value>> {
        let position = self.values.iter().position(|(name, _)| *name == key)?;
        Some(self.values.remove(position).1)
    }

    pub(super) fn value(&self, key: &str) -> Option<&ConfigValue<Value>> {
        self.values.iter().find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The text under `key` with its origin.
    pub(super) fn text(&self, key: &str) -> Option<ConfigValue<String>> {
        let ConfigValue { origin, .. } = self.value(key)?;
        Some(ConfigValue::new(self.string(key)?.to_owned(), origin.clone()))
    }

    pub(crate) fn string(&self, key: &str) -> Option<&str> {
        let Value::String(text) = &self.value(key)?.value else { return None };
        Some(text)
    }

    /// The value that a word stands for.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.string(key)?;
        choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
    }

    pub(crate) fn required(&self, key: &'static str) -> Result<&str, Invalid> {
        self.string(key).ok_or_else(|| Invalid::rule(key, "is missing"))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.value(key), Some(ConfigValue { value: Value::Flag(true), .. }))
    }

    pub(crate) fn number(&self, key: &str) -> Option<u32> {
        let Value::Number(number) = self.value(key)?.value else { return None };
        Some(number)
    }

    pub(super) fn decimal(&self, key: &str) -> Option<f64> {
        let Value::Decimal(number) = self.value(key)?.value else { return None };
        Some(number)
    }

    pub(crate) fn duration(&self, key: &str) -> Option<Duration> {
        let Value::Duration(duration) = self.value(key)?.value else { return None };
        Some(duration)
    }

    pub(super) fn durations(&self, key: &str) -> Option<&[Duration]> {
        let Value::Durations(durations) = &self.value(key)?.value else { return None };
        Some(durations)
    }

    pub(crate) fn rate(&self, key: &str) -> Option<Rate> {
        let Value::Rate(rate) = self.value(key)?.value else { return None };
        Some(rate)
    }

    pub(crate) fn strings(&self, key: &str) -> &[String] {
        match self.value(key).map(|found| &found.value) {
            Some(Value::Strings(texts)) => texts,
            _ => &[],
        }
    }

    pub(crate) fn numbers(&self, key: &str) -> &[u32] {
        match self.value(key).map(|found| &found.value) {
            Some(Value::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }

    pub(crate) fn secret(&self, key: &str) -> Option<&Secret> {
        let (Value::Secret(secret) | Value::Database(secret)) = &self.value(key)?.value else { return None };
        Some(secret)
    }

    pub(super) fn table(&self, key: &str) -> Option<&Self> {
        let Value::Table(section) = &self.value(key)?.value else { return None };
        Some(section)
    }

    pub(super) fn table_mut(&mut self, key: &str) -> Option<&mut Self> {
        let (_, found) = self.values.iter_mut().find(|(name, _)| *name == key)?;
        let Value::Table(section) = &mut found.value else { return None };
        Some(section)
    }

    /// The tables under `key` with their names or numbers.
    pub(super) fn tables(&self, key: &str) -> &[(String, Self)] {
        match self.value(key).map(|found| &found.value) {
            Some(Value::Tables(tables)) => tables,
            _ => &[],
        }
    }

    /// Adds all values, without secrets. `path` is that of the section, with a dot at its end.
    pub(super) fn add_to(&self, settings: &mut Settings, path: &str) {
        for (name, found) in &self.values {
            let path = format!("{path}{name}");
            match &found.value {
                Value::Table(section) => section.add_to(settings, &format!("{path}.")),
                Value::Tables(tables) => {
                    for (name, section) in tables {
                        section.add_to(settings, &format!("{path}.{name}."));
                    }
                }
                value => settings.add(path, found, value.printed()),
            }
        }
    }
}

impl Key {
    /// The value in this table, or the default. Every problem is reported.
    fn read(&self, table: &Table<'_>) -> Option<ConfigValue<Value>> {
        if self.is_required && table.is_missing(self) {
            table.report_missing(self);
        }
        if let Some((other, reason)) = self.conflict
            && table.has(other)
        {
            if table.has(self.name) {
                let what = format!("{} conflicts with {other}", table.path(self.name));
                table.report(table.line_of(self.name), what, format!("remove one of them: {reason}"));
            }
            return None;
        }
        let found = self.read_without_default(table);
        if let (Some(rule), Some(found)) = (self.rule, &found) {
            for mistake in
                found.texts().into_iter().filter_map(|text| rule(&table.path(self.name), text).err())
            {
                table.report(table.line_of_value(found), mistake.what, mistake.help);
            }
        }
        found.or_else(|| Some(ConfigValue::default(self.default_value()?)))
    }

    fn read_without_default(&self, table: &Table<'_>) -> Option<ConfigValue<Value>> {
        let read_each = |tables: Vec<(String, Table<'_>)>, table_type| {
            tables.iter().map(|(name, table)| (name.clone(), Section::read(table, table_type))).collect()
        };
        let origin = Origin::Line(table.line_of(self.name));
        match self.value_type {
            ValueType::Url => Some(table.url(self)?.map(Value::Secret)),
            ValueType::Database => Some(table.url(self)?.map(Value::Database)),
            ValueType::Secret => Some(table.secret(self.name)?.map(Value::Secret)),
            ValueType::Reference(section) => Some(table.reference(self, section)?.map(Value::String)),
            ValueType::Table(table_type) => {
                let inner = match table.table(self.name) {
                    Some(inner) => inner,
                    None if self.is_required => return None,
                    None => table.missing(self.name),
                };
                Some(ConfigValue::new(Value::Table(Section::read(&inner, table_type)), origin))
            }
            ValueType::Tables(table_type) => {
                Some(ConfigValue::new(Value::Tables(read_each(table.list(self)?, table_type)), origin))
            }
            ValueType::NamedTables(table_type) => {
                let tables = read_each(table.tables(self.name), table_type);
                Some(ConfigValue::new(Value::Tables(tables), origin))
            }
            _ => table.typed(self),
        }
    }

    pub(super) fn default_value(&self) -> Option<Value> {
        let toml = DeValue::parse(self.default?).ok()?;
        Value::parse(self, self.name, toml.get_ref()).ok()
    }
}

/// Reports that `key` is missing from a group of keys that require each other.
fn report_incomplete(table: &Table<'_>, key: &Key, group: &[&str]) {
    let what = format!("{} is missing: {} require each other", table.path(key.name), group.join(", "));
    let help = match key.value_type {
        ValueType::Secret => format!("write {}_env = {:?}", key.name, key.name.to_uppercase()),
        _ => format!("write {}", key.written()),
    };
    table.report(table.line(), what, help);
}
