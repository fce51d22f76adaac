//! One table of the configuration file. It reads typed values, and rejects unknown keys with the key that was probably meant.

use super::{
    key_type::{Key, ValueType, references},
    origin::{ConfigValue, Origin},
    reader::ConfigReader,
    secret::Secret,
    value::{Value, describe_type, suggest},
};
use std::{env, fs};
use toml::de::{DeTable, DeValue};

#[derive(Debug)]
pub(crate) struct Table<'r> {
    reader: &'r ConfigReader<'r>,
    /// The path, such as `databases.shop`; empty for the whole file.
    name: String,
    line: usize,
    /// None if the file does not have the table.
    content: Option<&'r DeTable<'r>>,
    /// The whole file.
    file: &'r DeTable<'r>,
}

impl<'r> Table<'r> {
    pub(crate) fn root(reader: &'r ConfigReader<'r>, file: &'r DeTable<'r>) -> Self {
        Self { reader, name: String::new(), line: 1, content: Some(file), file }
    }

    /// The table that the file does not have under `key`.
    pub(super) fn missing(&self, key: &str) -> Self {
        Self { name: self.path(key), content: None, ..*self }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// Reports every key that is not one of these.
    pub(super) fn reject_unknown_keys(&self, keys: &[Key]) {
        let names: Vec<_> = keys.iter().flat_map(Key::names).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for (key, value) in self.content.into_iter().flatten() {
            let (found, line) = (key.get_ref().as_ref(), self.reader.line_of(&key.span()));
            if names.contains(&found) {
                continue;
            }
            if references(found).iter().all(|reference| names.contains(&reference.as_str())) {
                let what = format!("{} is a secret and must not be in the file", self.path(found));
                self.report(line, what, secret_help(found));
                continue;
            }
            let table = if self.name.is_empty() { "the file" } else { &self.name };
            match keys.iter().find(|key| key.old_name == Some(found)) {
                Some(key) => {
                    let written = self.reader.written(&value.span());
                    let written = match key.value_type {
                        ValueType::Rate => format!("\"{written}/s\""),
                        _ => written.to_owned(),
                    };
                    let what = format!("{table}: {found:?} was renamed");
                    self.report(line, what, format!("write {} = {written}", key.name));
                }
                None => self.report(line, format!("{table} has no key {found:?}"), suggest(found, &names)),
            }
        }
    }

    /// Reports a problem in `line`, and what to write there instead.
    pub(crate) fn report(&self, line: usize, what: impl AsRef<str>, help: impl Into<String>) {
        self.reader.report(line, what, help);
    }

    /// Reports a problem of the environment or of a flag.
    pub(crate) fn report_outside_file(&self, what: String, help: &str) {
        self.reader.report_outside_file(what, help);
    }

    pub(super) fn report_missing(&self, key: &Key) {
        let what = match key.value_type {
            ValueType::NamedTables(_) => format!("no {} is defined", key.name.trim_end_matches('s')),
            _ => format!("{} is missing", self.path(key.name)),
        };
        self.report(self.line, what, format!("write {}", key.written()));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.content.is_some_and(|content| content.contains_key(key))
    }

    /// Whether `key` is not set under any of its names, or is an empty list or table.
    pub(super) fn is_missing(&self, key: &Key) -> bool {
        let is_referred_to = key.is_secret() && self.is_set(key.name);
        !is_referred_to && self.is_empty(key.name)
    }

    /// Whether `key` is missing, or is an empty list or table.
    pub(super) fn is_empty(&self, key: &str) -> bool {
        match self.value(key).map(|(_, value)| value) {
            None => true,
            Some(DeValue::Array(list)) => list.is_empty(),
            Some(DeValue::Table(table)) => table.is_empty(),
            Some(_) => false,
        }
    }

    /// The value of a key that is neither a table nor a secret.
    pub(super) fn typed(&self, key: &Key) -> Option<ConfigValue<Value>> {
        let (line, value) = self.value(key.name)?;
        match Value::parse(key, &self.path(key.name), value) {
            Ok(value) => Some(ConfigValue::new(value, Origin::Line(line))),
            Err(mistake) => {
                self.report(line, mistake.what, mistake.help);
                None
            }
        }
    }

    /// A string under a name that may be that of a reference.
    fn string(&self, key: &str, example: &str) -> Option<ConfigValue<String>> {
        let (line, value) = self.value(key)?;
        let Some(text) = value.as_str() else {
            let what = format!("{} is {}; it must be a string", self.path(key), describe_type(value));
            self.report(line, what, format!("write {key} = {example}"));
            return None;
        };
        Some(ConfigValue::new(text.to_owned(), Origin::Line(line)))
    }

    /// The name of one of the tables of `section`.
    pub(super) fn reference(&self, key: &Key, section: &str) -> Option<ConfigValue<String>> {
        let tables = self.file.get(section).and_then(|tables| tables.get_ref().as_table());
        let tables = tables.into_iter().flatten().filter(|(_, table)| table.get_ref().is_table());
        let names: Vec<_> = tables.map(|(name, _)| name.get_ref().as_ref()).collect();
        if !self.has(key.name) {
            return match names[..] {
                _ if key.is_required => None,
                [only] => Some(ConfigValue::default(only.to_owned())),
                [] => None,
                [first, ..] => {
                    let what = format!("{} is missing", self.path(key.name));
                    self.report(self.line, what, format!("write {} = {first:?}", key.name));
                    None
                }
            };
        }
        let name = self.string(key.name, key.example)?;
        if names.contains(&name.as_str()) {
            return Some(name);
        }
        let what = format!("{} is {:?}, which is not defined", self.path(key.name), name.value);
        let define = format!("write [{section}.{}]", name.value);
        let help = if names.is_empty() { define } else { format!("{}, or {define}", suggest(&name, &names)) };
        self.report(self.line_of_value(&name), what, help);
        None
    }

    /// Whether `key` is set, directly or as `key_env` or `key_file`.
    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.has(key) || references(key).iter().any(|reference| self.has(reference))
    }

    /// A secret, which must not be in the file: `key_env` names an environment variable that holds it, or `key_file` a file.
    pub(crate) fn secret(&self, key: &str) -> Option<ConfigValue<Secret>> {
        let [env_key, file_key] = references(key);
        if self.has_conflict(&[&env_key, &file_key]) {
            return None;
        }
        if let Some(name) = self.string(&env_key, &format!("{:?}", key.to_uppercase())) {
            if !is_variable(&name) {
                // The value may be the secret itself, so it is not repeated.
                let what = format!("{} is not the name of an environment variable", self.path(&env_key));
                self.report(self.line_of_value(&name), what, secret_help(key));
                return None;
            }
            return match env::var(&*name) {
                Ok(text) if !text.is_empty() => {
                    Some(ConfigValue::new(Secret::new(text), Origin::Env(name.value)))
                }
                _ => {
                    let what = format!("{} names {}, which is not set", self.path(&env_key), *name);
                    self.report(self.line_of_value(&name), what, format!("set {} in the environment", *name));
                    None
                }
            };
        }
        let path = self.string(&file_key, &format!("\"/run/secrets/{key}\""))?;
        match fs::read_to_string(&*path) {
            Ok(text) => {
                let text = text.trim_end_matches(['\r', '\n']);
                Some(ConfigValue::new(Secret::new(text), Origin::File(path.value)))
            }
            Err(error) => {
                let what = format!("{} names {}, which cannot be read: {error}", self.path(&file_key), *path);
                self.report(
                    self.line_of_value(&path),
                    what,
                    "write the path of a file that this user may read",
                );
                None
            }
        }
    }

    /// A URL: in the file as `key` unless it holds a password, otherwise a secret.
    pub(super) fn url(&self, key: &Key) -> Option<ConfigValue<Secret>> {
        let [env_key, file_key] = references(key.name);
        if self.has_conflict(&[key.name, &env_key, &file_key]) {
            return None;
        }
        let Some(text) = self.string(key.name, key.example) else { return self.secret(key.name) };
        let url = text.map(Secret::new);
        if url.holds_password() {
            let what = format!("{} holds a password, which must not be in the file", self.path(key.name));
            self.report(self.line_of_value(&url), what, secret_help(key.name));
            return None;
        }
        Some(url)
    }

    /// Reports if more than one of these keys is set.
    fn has_conflict(&self, names: &[&str]) -> bool {
        let mut set = names.iter().filter(|name| self.has(name));
        let (Some(first), Some(second)) = (set.next(), set.next()) else { return false };
        let what = format!("{} conflicts with {first}", self.path(second));
        self.report(self.line_of(second), what, format!("keep one of {}", names.join(", ")));
        true
    }

    /// The table under `key`, such as `[http]`.
    pub(crate) fn table(&self, key: &str) -> Option<Self> {
        let (line, value) = self.value(key)?;
        self.as_table(self.path(key), line, value, None)
    }

    /// The tables under `key` by their names, such as `[databases.shop]`.
    pub(crate) fn tables(&self, key: &str) -> Vec<(String, Self)> {
        let Some(outer) = self.table(key) else { return Vec::new() };
        let each = outer.content.into_iter().flatten().filter_map(|(name, value)| {
            let line = self.reader.line_of(&name.span());
            let name = name.get_ref().as_ref();
            Some((name.to_owned(), self.as_table(outer.path(name), line, value.get_ref(), None)?))
        });
        each.collect()
    }

    /// The tables of a list, such as `[[routes]]`, by their numbers from 1.
    pub(super) fn list(&self, key: &Key) -> Option<Vec<(String, Self)>> {
        let (line, value) = self.value(key.name)?;
        let path = self.path(key.name);
        let Some(list) = value.as_array() else {
            self.report(line, format!("{path} must be a list of tables"), format!("write {}", key.written()));
            return None;
        };
        let each = list.iter().zip(1..).filter_map(|(value, number)| {
            let line = self.reader.line_of(&value.span());
            let path = format!("{path}.{number}");
            Some((number.to_string(), self.as_table(path, line, value.get_ref(), Some(&key.written()))?))
        });
        Some(each.collect())
    }

    /// The line of a value of this table.
    pub(crate) fn line_of_value<T>(&self, found: &ConfigValue<T>) -> usize {
        found.line().unwrap_or(self.line)
    }

    /// The line of a key of this table; if it is missing, that of the table.
    pub(crate) fn line_of(&self, key: &str) -> usize {
        self.value(key).map_or(self.line, |(line, _)| line)
    }

    pub(crate) fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// `example` shows how to write the table, if not as `[name]`.
    fn as_table(
        &self,
        name: String,
        line: usize,
        value: &'r DeValue<'r>,
        example: Option<&str>,
    ) -> Option<Self> {
        let Some(content) = value.as_table() else {
            let what = format!("{name} is {}; it must be a table", describe_type(value));
            let help = match example {
                Some(example) => format!("write {example}"),
                None => format!("write [{name}] on a line of its own, with its keys below"),
            };
            self.report(line, what, help);
            return None;
        };
        Some(Self { reader: self.reader, name, line, content: Some(content), file: self.file })
    }

    fn value(&self, key: &str) -> Option<(usize, &'r DeValue<'r>)> {
        let (name, value) = self.content?.get_key_value(key)?;
        Some((self.reader.line_of(&name.span()), value.get_ref()))
    }
}

/// Whether `name` is a valid name of an environment variable.
pub(super) fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Advice on what to write instead of a secret.
fn secret_help(key: &str) -> String {
    let [env_key, file_key] = references(key);
    let variable = key.to_uppercase();
    format!(
        "name an environment variable that holds it, such as {env_key} = {variable:?}, or a file, such as {file_key} = \"/run/secrets/{key}\""
    )
}
