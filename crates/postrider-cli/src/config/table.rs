//! One table of the file. It knows its keys, and tells whoever mistypes one which was meant.

use super::{
    origin::{Found, Origin},
    reading::Reading,
    secret::Secret,
};
use crate::duration;
use std::{env, fs, time::Duration};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// So many slips of the finger still look like the word that was meant, unless they are half of it.
const SLIPS: usize = 3;

#[derive(Debug)]
pub(crate) struct Table<'r> {
    reading: &'r Reading<'r>,
    /// As in `databases.shop`; empty for the whole file.
    name: String,
    line: usize,
    content: &'r DeTable<'r>,
}

impl<'r> Table<'r> {
    pub(crate) fn root(reading: &'r Reading<'r>, content: &'r Spanned<DeTable<'r>>) -> Self {
        Self { reading, name: String::new(), line: 1, content: content.get_ref() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// Refuses every key that is not one of these.
    pub(crate) fn knows(&self, keys: &[impl AsRef<str>]) {
        let keys: Vec<_> = keys.iter().map(AsRef::as_ref).collect();
        for key in self.content.keys() {
            let (found, line) = (key.get_ref().as_ref(), self.reading.line_of(&key.span()));
            if keys.contains(&found) {
                continue;
            }
            if references(found).iter().all(|reference| keys.contains(&reference.as_str())) {
                let what = format!("{} is a secret: whoever reads the file would know it", self.path(found));
                self.wrong(line, what, elsewhere(found));
            } else {
                let place = if self.name.is_empty() { "the file" } else { &self.name };
                self.wrong(line, format!("{place} has no key {found:?}"), meant(found, &keys));
            }
        }
    }

    pub(crate) fn wrong(&self, line: usize, what: impl AsRef<str>, help: impl Into<String>) {
        self.reading.wrong(line, what, help);
    }

    /// What is wrong stands in the environment.
    pub(crate) fn wrong_elsewhere(&self, what: String, help: &str) {
        self.reading.wrong_elsewhere(what, help);
    }

    pub(crate) fn missing(&self, key: &str, example: &str) {
        self.wrong(self.line, format!("{} is missing", self.path(key)), format!("write {key} = {example}"));
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.content.contains_key(key)
    }

    /// Whether there is nothing under `key`: it is not there, or an empty list or table.
    pub(crate) fn lacks(&self, key: &str) -> bool {
        match self.content.get(key).map(Spanned::get_ref) {
            None => true,
            Some(DeValue::Array(list)) => list.is_empty(),
            Some(DeValue::Table(table)) => table.is_empty(),
            Some(_) => false,
        }
    }

    /// A text that must be there.
    pub(crate) fn required(&self, key: &str, example: &str) -> Option<Found<String>> {
        if !self.has(key) {
            self.missing(key, example);
        }
        self.text(key, example)
    }

    /// The name under `key` is none of those that the file has.
    pub(crate) fn unknown(&self, key: &str, name: &Found<String>, names: &[&str]) {
        let what = format!("{} is {:?}, which is not there", self.path(key), name.value);
        let help = match names {
            [] => format!("write [{key}s.{}]", name.value),
            names => format!("{}, or write [{key}s.{}]", meant(name, names), name.value),
        };
        self.wrong(self.line_at(name), what, help);
    }

    pub(crate) fn text(&self, key: &str, example: &str) -> Option<Found<String>> {
        self.typed(key, "a text", example, |value| value.as_str().map(str::to_owned))
    }

    pub(crate) fn flag(&self, key: &str) -> Option<Found<bool>> {
        let read = |value: &DeValue<'_>| match value {
            DeValue::Boolean(flag) => Some(*flag),
            _ => None,
        };
        self.typed(key, "true or false", "true", read)
    }

    /// A number that is more than nothing.
    pub(crate) fn number(&self, key: &str, example: &str) -> Option<Found<u32>> {
        let read = |value: &DeValue<'_>| {
            let number = value.as_integer()?;
            u32::from_str_radix(number.as_str(), number.radix()).ok().filter(|number| *number > 0)
        };
        self.typed(key, "a whole number of at least 1", example, read)
    }

    /// A number that may have decimals.
    pub(crate) fn decimal(&self, key: &str, example: &str) -> Option<Found<f64>> {
        let read = |value: &DeValue<'_>| match value {
            DeValue::Integer(number) => number.as_str().parse().ok(),
            DeValue::Float(number) => number.as_str().parse().ok(),
            _ => None,
        };
        self.typed(key, "a number", example, read)
    }

    pub(crate) fn duration(&self, key: &str, example: &str) -> Option<Found<Duration>> {
        let text = self.text(key, example)?;
        match duration::parse(&text) {
            Ok(duration) => Some(text.map(|_| duration)),
            Err(help) => {
                let what = format!("{} cannot be read", self.path(key));
                self.wrong(self.line_at(&text), what, help);
                None
            }
        }
    }

    pub(crate) fn durations(&self, key: &str, example: &str) -> Option<Found<Vec<Duration>>> {
        let texts = self.texts(key, example)?;
        let durations: Result<Vec<_>, _> = texts.iter().map(|text| duration::parse(text)).collect();
        match durations {
            Ok(durations) => Some(texts.map(|_| durations)),
            Err(help) => {
                let what = format!("{} has one that cannot be read", self.path(key));
                self.wrong(self.line_at(&texts), what, help);
                None
            }
        }
    }

    pub(crate) fn texts(&self, key: &str, example: &str) -> Option<Found<Vec<String>>> {
        let read = |value: &DeValue<'_>| {
            let texts = value.as_array()?.iter().map(|each| each.get_ref().as_str().map(str::to_owned));
            texts.collect()
        };
        self.typed(key, "a list of texts", example, read)
    }

    pub(crate) fn numbers(&self, key: &str, example: &str) -> Option<Found<Vec<u32>>> {
        let number = |value: &DeValue<'_>| {
            let number = value.as_integer()?;
            u32::from_str_radix(number.as_str(), number.radix()).ok()
        };
        let read =
            |value: &DeValue<'_>| value.as_array()?.iter().map(|each| number(each.get_ref())).collect();
        self.typed(key, "a list of whole numbers", example, read)
    }

    /// One word of these, and what it stands for.
    pub(crate) fn word<T: Copy>(&self, key: &str, words: &[(&str, T)]) -> Option<Found<T>> {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let text = self.text(key, &format!("{:?}", known.first().copied().unwrap_or_default()))?;
        match words.iter().find(|(word, _)| *word == *text) {
            Some((_, meaning)) => Some(text.map(|_| *meaning)),
            None => {
                let what = format!("{} cannot be {:?}", self.path(key), *text);
                self.wrong(self.line_at(&text), what, meant(&text, &known));
                None
            }
        }
    }

    /// Whether it is there, itself or by a reference.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.has(key) || references(key).iter().any(|reference| self.has(reference))
    }

    /// What must not stand in the file: `key_env` has the name of a variable that holds it, or `key_file` the path of a file.
    pub(crate) fn secret(&self, key: &str) -> Option<Found<Secret>> {
        let [env_key, file_key] = references(key);
        if self.is_given_twice(&[&env_key, &file_key]) {
            return None;
        }
        if let Some(name) = self.text(&env_key, &format!("{:?}", key.to_uppercase())) {
            if !is_variable(&name) {
                // It may be the secret itself.
                let what = format!("{} names no variable", self.path(&env_key));
                self.wrong(self.line_at(&name), what, elsewhere(key));
                return None;
            }
            return match env::var(&*name) {
                Ok(text) if !text.is_empty() => Some(Found::new(Secret::new(text), Origin::Env(name.value))),
                _ => {
                    let what = format!("{} names {}, which is not set", self.path(&env_key), *name);
                    self.wrong(self.line_at(&name), what, format!("set {} in the environment", *name));
                    None
                }
            };
        }
        let path = self.text(&file_key, &format!("\"/run/secrets/{key}\""))?;
        match fs::read_to_string(&*path) {
            Ok(text) => {
                let text = text.trim_end_matches(['\r', '\n']);
                Some(Found::new(Secret::new(text), Origin::File(path.value)))
            }
            Err(error) => {
                let what = format!("{} names {}, which cannot be read: {error}", self.path(&file_key), *path);
                self.wrong(self.line_at(&path), what, "give the path of a file that this user may read");
                None
            }
        }
    }

    /// A URL: `key` itself, unless it holds a password; or as any secret.
    pub(crate) fn url(&self, key: &str, example: &str) -> Option<Found<Secret>> {
        let [env_key, file_key] = references(key);
        if self.is_given_twice(&[key, &env_key, &file_key]) {
            return None;
        }
        let Some(text) = self.text(key, example) else { return self.secret(key) };
        let url = text.map(Secret::new);
        if url.holds_password() {
            let what = format!("{} holds a password: whoever reads the file would know it", self.path(key));
            self.wrong(self.line_at(&url), what, elsewhere(key));
            return None;
        }
        Some(url)
    }

    /// Refuses a second one of what has to be given once.
    fn is_given_twice(&self, names: &[&str]) -> bool {
        let mut given = names.iter().filter(|name| self.has(name));
        let (Some(first), Some(second)) = (given.next(), given.next()) else { return false };
        let what = format!("{} is given besides {first}", self.path(second));
        self.wrong(self.line_of(second), what, format!("keep one of {}", names.join(", ")));
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
            let line = self.reading.line_of(&name.span());
            let name = name.get_ref().as_ref();
            Some((name.to_owned(), self.as_table(outer.path(name), line, value.get_ref(), None)?))
        });
        each.collect()
    }

    /// The tables of the list under `key`, such as `[[routes]]`, which are numbered from 1.
    pub(crate) fn list(&self, key: &str, example: &str) -> Option<Vec<Self>> {
        let (line, value) = self.value(key)?;
        let Some(list) = value.as_array() else {
            self.wrong(
                line,
                format!("{} must be a list of tables", self.path(key)),
                format!("write {example}"),
            );
            return None;
        };
        let each = list.iter().enumerate().filter_map(|(index, value)| {
            let line = self.reading.line_of(&value.span());
            self.as_table(format!("{}.{}", self.path(key), index + 1), line, value.get_ref(), Some(example))
        });
        Some(each.collect())
    }

    /// Where a value of this table stands.
    pub(crate) fn line_at<T>(&self, found: &Found<T>) -> usize {
        match found.origin {
            Origin::Line(line) => line,
            _ => self.line,
        }
    }

    /// Where a key of this table stands, or else the table.
    pub(crate) fn line_of(&self, key: &str) -> usize {
        self.value(key).map_or(self.line, |(line, _)| line)
    }

    pub(crate) fn path(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_owned() } else { format!("{}.{key}", self.name) }
    }

    /// `example` is how it is written, where not as `[name]`.
    fn as_table(
        &self,
        name: String,
        line: usize,
        value: &'r DeValue<'r>,
        example: Option<&str>,
    ) -> Option<Self> {
        let Some(content) = value.as_table() else {
            let what = format!("{name} is {}; it must be a table", kind(value));
            let help = match example {
                Some(example) => format!("write {example}"),
                None => format!("write [{name}] on a line of its own, and its keys below it"),
            };
            self.wrong(line, what, help);
            return None;
        };
        Some(Self { reading: self.reading, name, line, content })
    }

    fn value(&self, key: &str) -> Option<(usize, &'r DeValue<'r>)> {
        let (name, value) = self.content.get_key_value(key)?;
        Some((self.reading.line_of(&name.span()), value.get_ref()))
    }

    fn typed<T>(
        &self,
        key: &str,
        expected: &str,
        example: &str,
        read: impl FnOnce(&DeValue<'_>) -> Option<T>,
    ) -> Option<Found<T>> {
        let (line, value) = self.value(key)?;
        if let Some(read) = read(value) {
            return Some(Found::new(read, Origin::Line(line)));
        }
        let what = format!("{} is {}; it must be {expected}", self.path(key), kind(value));
        self.wrong(line, what, format!("write {key} = {example}"));
        None
    }
}

/// How a secret is referred to.
fn references(key: &str) -> [String; 2] {
    ["env", "file"].map(|place| format!("{key}_{place}"))
}

/// Whether the environment can have a variable of that name.
pub(super) fn is_variable(name: &str) -> bool {
    !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What to write instead of a secret.
fn elsewhere(key: &str) -> String {
    let [env_key, file_key] = references(key);
    let variable = key.to_uppercase();
    format!(
        "name a variable that holds it, such as {env_key} = {variable:?}, or a file, such as {file_key} = \"/run/secrets/{key}\""
    )
}

/// What a value is. Its text is not told: it may be a password.
fn kind(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(_) => "a text".to_owned(),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// Which of the known words somebody meant who wrote `found`.
fn meant(found: &str, known: &[&str]) -> String {
    let all = format!("known: {}", known.join(", "));
    let near = known.iter().map(|word| (strsim::osa_distance(found, word), word)).min();
    match near {
        Some((slips, word)) if slips <= SLIPS && slips * 2 <= word.len() => {
            format!("did you mean {word:?}? ({all})")
        }
        _ => all,
    }
}
