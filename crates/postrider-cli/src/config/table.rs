//! One table of the configuration file. It reads typed values, and rejects unknown keys with the key that was probably meant.

use super::{
    origin::{ConfigValue, Origin},
    reader::ConfigReader,
    renamed::RenamedKey,
    secret::Secret,
};
use crate::{duration, rate::Rate};
use std::{env, fs, time::Duration};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A key within this edit distance of a known one is taken for a typo of it, unless the distance is more than half of its length.
const MAX_TYPO_DISTANCE: usize = 3;

#[derive(Debug)]
pub(crate) struct Table<'r> {
    reader: &'r ConfigReader<'r>,
    /// The path, such as `databases.shop`; empty for the whole file.
    name: String,
    line: usize,
    content: &'r DeTable<'r>,
}

impl<'r> Table<'r> {
    pub(crate) fn root(reader: &'r ConfigReader<'r>, content: &'r Spanned<DeTable<'r>>) -> Self {
        Self { reader, name: String::new(), line: 1, content: content.get_ref() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// Reports every key that is not one of these.
    pub(crate) fn reject_unknown_keys(&self, keys: &[impl AsRef<str>]) {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        for (key, value) in self.content {
            let (found, line) = (key.get_ref().as_ref(), self.reader.line_of(&key.span()));
            if keys.contains(&found) {
                continue;
            }
            if references(found).iter().all(|reference| keys.contains(&reference.as_str())) {
                let what = format!("{} is a secret and must not be in the file", self.path(found));
                self.report(line, what, secret_help(found));
                continue;
            }
            let table = if self.name.is_empty() { "the file" } else { &self.name };
            match RenamedKey::find(found).filter(|renamed| keys.contains(&renamed.new)) {
                Some(RenamedKey { new, convert, .. }) => {
                    let written = convert(self.reader.written(&value.span()));
                    let what = format!("{table}: {found:?} was renamed");
                    self.report(line, what, format!("write {new} = {written}"));
                }
                None => self.report(line, format!("{table} has no key {found:?}"), suggest(found, &keys)),
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

    pub(crate) fn report_missing(&self, key: &str, example: &str) {
        self.report(self.line, format!("{} is missing", self.path(key)), format!("write {key} = {example}"));
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.content.contains_key(key)
    }

    /// Whether `key` is missing, or is an empty list or table.
    pub(crate) fn is_empty_or_missing(&self, key: &str) -> bool {
        match self.content.get(key).map(Spanned::get_ref) {
            None => true,
            Some(DeValue::Array(list)) => list.is_empty(),
            Some(DeValue::Table(table)) => table.is_empty(),
            Some(_) => false,
        }
    }

    /// A required string.
    pub(crate) fn required(&self, key: &str, example: &str) -> Option<ConfigValue<String>> {
        if !self.has(key) {
            self.report_missing(key, example);
        }
        self.string(key, example)
    }

    /// Reports that the name under `key` is not defined in the file.
    pub(crate) fn report_unknown_name(&self, key: &str, name: &ConfigValue<String>, names: &[&str]) {
        let what = format!("{} is {:?}, which is not defined", self.path(key), name.value);
        let help = match names {
            [] => format!("write [{key}s.{}]", name.value),
            names => format!("{}, or write [{key}s.{}]", suggest(name, names), name.value),
        };
        self.report(self.line_of_value(name), what, help);
    }

    pub(crate) fn string(&self, key: &str, example: &str) -> Option<ConfigValue<String>> {
        self.typed(key, "a string", example, |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn flag(&self, key: &str) -> Option<ConfigValue<bool>> {
        let read = |value: &DeValue<'_>| match value {
            DeValue::Boolean(flag) => Some(*flag),
            _ => None,
        };
        self.typed(key, "true or false", "true", read)
    }

    /// A positive whole number.
    pub(crate) fn number(&self, key: &str, example: &str) -> Option<ConfigValue<u32>> {
        let read = |value: &DeValue<'_>| {
            let number = value.as_integer()?;
            u32::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| *number > 0)
        };
        self.typed(key, "a whole number of at least 1", example, read)
    }

    /// A number that may have a fraction.
    pub(crate) fn decimal(&self, key: &str, example: &str) -> Option<ConfigValue<f64>> {
        let read = |value: &DeValue<'_>| match value {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        self.typed(key, "a number", example, read)
    }

    pub(crate) fn duration(&self, key: &str, example: &str) -> Option<ConfigValue<Duration>> {
        let text = self.string(key, example)?;
        match duration::parse(&text) {
            Ok(duration) => Some(text.map(|_| duration)),
            Err(help) => {
                let what = format!("invalid {}", self.path(key));
                self.report(self.line_of_value(&text), what, help);
                None
            }
        }
    }

    /// A rate such as `"100/s"`.
    pub(crate) fn rate(&self, key: &str, example: &str) -> Option<ConfigValue<Rate>> {
        let text = self.string(key, example)?;
        match text.parse() {
            Ok(rate) => Some(text.map(|_| rate)),
            Err(help) => {
                self.report(self.line_of_value(&text), format!("invalid {}", self.path(key)), help);
                None
            }
        }
    }

    pub(crate) fn durations(&self, key: &str, example: &str) -> Option<ConfigValue<Vec<Duration>>> {
        let texts = self.strings(key, example)?;
        let durations: Result<Vec<_>, _> = texts.iter().map(|text| duration::parse(text)).collect();
        match durations {
            Ok(durations) => Some(texts.map(|_| durations)),
            Err(help) => {
                let what = format!("{} has an invalid duration", self.path(key));
                self.report(self.line_of_value(&texts), what, help);
                None
            }
        }
    }

    pub(crate) fn strings(&self, key: &str, example: &str) -> Option<ConfigValue<Vec<String>>> {
        let read = |value: &DeValue<'_>| {
            let texts = value.as_array()?.iter().map(|each| each.get_ref().as_str().map(str::to_owned));
            texts.collect()
        };
        self.typed(key, "a list of strings", example, read)
    }

    pub(crate) fn numbers(&self, key: &str, example: &str) -> Option<ConfigValue<Vec<u32>>> {
        let number = |value: &DeValue<'_>| {
            let number = value.as_integer()?;
            u32::from_str_radix(number.as_str(), number.radix()).ok()
        };
        let read =
            |value: &DeValue<'_>| value.as_array()?.iter().map(|each| number(each.get_ref())).collect();
        self.typed(key, "a list of whole numbers", example, read)
    }

    /// One of these words, as the value that it stands for.
    pub(crate) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)]) -> Option<ConfigValue<T>> {
        let known: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let text = self.string(key, &format!("{:?}", known.first().copied().unwrap_or_default()))?;
        match choices.iter().find(|(word, _)| *word == *text) {
            Some((_, value)) => Some(text.map(|_| *value)),
            None => {
                let what = format!("{} cannot be {:?}", self.path(key), *text);
                self.report(self.line_of_value(&text), what, suggest(&text, &known));
                None
            }
        }
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
    pub(crate) fn url(&self, key: &str, example: &str) -> Option<ConfigValue<Secret>> {
        let [env_key, file_key] = references(key);
        if self.has_conflict(&[key, &env_key, &file_key]) {
            return None;
        }
        let Some(text) = self.string(key, example) else { return self.secret(key) };
        let url = text.map(Secret::new);
        if url.holds_password() {
            let what = format!("{} holds a password, which must not be in the file", self.path(key));
            self.report(self.line_of_value(&url), what, secret_help(key));
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
        let each = outer.content.iter().filter_map(|(name, value)| {
            let line = self.reader.line_of(&name.span());
            let name = name.get_ref().as_ref();
            Some((name.to_owned(), self.as_table(outer.path(name), line, value.get_ref(), None)?))
        });
        each.collect()
    }

    /// The tables of the list under `key`, such as `[[routes]]`, which are numbered from 1.
    pub(crate) fn list(&self, key: &str, example: &str) -> Option<Vec<Self>> {
        let (line, value) = self.value(key)?;
        let Some(list) = value.as_array() else {
            self.report(
                line,
                format!("{} must be a list of tables", self.path(key)),
                format!("write {example}"),
            );
            return None;
        };
        let each = list.iter().enumerate().filter_map(|(index, value)| {
            let line = self.reader.line_of(&value.span());
            self.as_table(format!("{}.{}", self.path(key), index + 1), line, value.get_ref(), Some(example))
        });
        Some(each.collect())
    }

    /// The line of a value of this table.
    pub(crate) fn line_of_value<T>(&self, found: &ConfigValue<T>) -> usize {
        match found.origin {
            Origin::Line(line) => line,
            _ => self.line,
        }
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
        Some(Self { reader: self.reader, name, line, content })
    }

    fn value(&self, key: &str) -> Option<(usize, &'r DeValue<'r>)> {
        let (name, value) = self.content.get_key_value(key)?;
        Some((self.reader.line_of(&name.span()), value.get_ref()))
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        example: &str,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<ConfigValue<T>> {
        let (line, value) = self.value(key)?;
        if let Some(read) = read(value) {
            return Some(ConfigValue::new(read, Origin::Line(line)));
        }
        let what = format!("{} is {}; it must be {expected}", self.path(key), describe_type(value));
        self.report(line, what, format!("write {key} = {example}"));
        None
    }
}

/// The keys that refer to a secret.
fn references(key: &str) -> [String; 2] {
    ["env", "file"].map(|suffix| format!("{key}_{suffix}"))
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

/// The type of a value. A string is not repeated: it may be a password.
fn describe_type(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(_) => "a string".to_owned(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The known word that `found` is probably a typo of, and all known words.
fn suggest(found: &str, known: &[&str]) -> String {
    let all = format!("known: {}", known.join(", "));
    let near = known.iter().map(|word| (strsim::osa_distance(found, word), word)).min();
    match near {
        Some((distance, word)) if distance <= MAX_TYPO_DISTANCE && distance * 2 <= word.len() => {
            format!("did you mean {word:?}? ({all})")
        }
        _ => all,
    }
}
