//! A place where messages are handed over: `[destinations.…]`, or the `source = { … }` of a consumer. Its kind says which keys it has.

use super::{
    key::{EITHER, Holds, Key, Side, TOGETHER, keys},
    kind::{KINDS, Kind},
    origin::{Found, Line},
    secret::Secret,
    setting::Settings,
    table::Table,
};
use postrider::Invalid;
use std::{collections::BTreeMap, time::Duration};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Place {
    /// Where it stands, for whoever cannot build it.
    pub(crate) line: Line,
    pub(crate) kind: Found<Kind>,
    values: BTreeMap<&'static str, Value>,
}

#[derive(Debug, Clone, PartialEq)]
enum Value {
    Text(Found<String>),
    Flag(Found<bool>),
    Number(Found<u32>),
    Duration(Found<Duration>),
    Texts(Found<Vec<String>>),
    Secret(Found<Secret>),
}

impl Place {
    pub(crate) fn read(table: &Table<'_>, side: Side) -> Option<Self> {
        if !table.has("kind") {
            table.missing("kind", "\"webhook\"");
            return None;
        }
        // Nothing comes from standard output, nor from a topic of SNS: that goes to queues of SQS.
        let is_one_way = |kind| matches!(kind, Kind::Stdout | Kind::Sns);
        let kinds: Vec<_> =
            KINDS.into_iter().filter(|(_, kind)| side == Side::To || !is_one_way(*kind)).collect();
        let kind = table.word("kind", &kinds)?;
        kind.check_built(table);
        let keys = keys(kind.value, side);
        table.knows(&[&["kind".to_owned()], &names(&keys)[..]].concat());
        Some(Self::of(table, kind, &keys))
    }

    /// One of this kind, whose keys stand in a table that has others, too.
    pub(super) fn of(table: &Table<'_>, kind: Found<Kind>, keys: &[Key]) -> Self {
        let values = keys.iter().filter_map(|key| Some((key.name, Value::read(table, key)?))).collect();
        for group in TOGETHER {
            let missing = group.iter().filter(|name| !table.is_given(name));
            if group.iter().any(|name| table.is_given(name)) {
                missing.for_each(|name| incomplete(table, keys, name, group));
            }
        }
        for group in EITHER {
            let mut given = group.iter().filter(|name| table.is_given(name));
            if let (Some(first), Some(second)) = (given.next(), given.next()) {
                let what = format!("{} is given besides {first}", table.path(second));
                table.wrong(table.line(), what, format!("keep one of {}", group.join(", ")));
            }
        }
        Self { line: Line(table.line()), kind, values }
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        match self.values.get(key)? {
            Value::Text(found) => Some(found.as_str()),
            _ => None,
        }
    }

    pub(crate) fn needed(&self, key: &'static str) -> Result<&str, Invalid> {
        self.text(key).ok_or_else(|| Invalid::rule(key, "is missing"))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        matches!(self.values.get(key), Some(Value::Flag(flag)) if flag.value)
    }

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

    pub(crate) fn texts(&self, key: &str) -> &[String] {
        match self.values.get(key) {
            Some(Value::Texts(found)) => &found.value,
            _ => &[],
        }
    }

    pub(crate) fn secret(&self, key: &str) -> Option<&Secret> {
        match self.values.get(key)? {
            Value::Secret(found) => Some(&found.value),
            _ => None,
        }
    }

    /// Where it is, for whoever connects.
    #[cfg(any(feature = "rabbitmq", feature = "nats", feature = "redis", feature = "kafka"))]
    pub(crate) fn url(&self) -> Result<&str, Invalid> {
        self.secret("url").map(Secret::reveal).ok_or_else(|| Invalid::rule("url", "is missing"))
    }

    /// The files with the certificate that we show, and with its key.
    #[cfg(any(feature = "rabbitmq", feature = "nats", feature = "kafka"))]
    pub(crate) fn certificate(&self) -> Option<(&str, &str)> {
        Some((self.text("certificate_file")?, self.text("key_file")?))
    }

    pub(crate) fn settings(&self, place: &str, settings: &mut Settings) {
        settings.text(format!("{place}.kind"), &self.kind);
        self.values_in(place, settings);
    }

    pub(super) fn values_in(&self, place: &str, settings: &mut Settings) {
        for (name, value) in &self.values {
            let key = format!("{place}.{name}");
            match value {
                Value::Text(found) => settings.text(key, found),
                Value::Flag(found) => settings.add(key, found, found.value),
                Value::Number(found) => settings.add(key, found, found.value),
                Value::Duration(found) => settings.add(key, found, format!("{:?}", found.value)),
                Value::Texts(found) => settings.add(key, found, found.value.clone()),
                Value::Secret(found) => settings.text(key, found),
            }
        }
    }
}

impl Value {
    fn read(table: &Table<'_>, key: &Key) -> Option<Self> {
        let Key { name, example, .. } = *key;
        if key.is_needed && !table.is_given(name) {
            table.missing(name, example);
        }
        match key.holds {
            Holds::Text => table.text(name, example).map(Self::Text),
            Holds::Word(words) => {
                let words: Vec<_> = words.iter().map(|word| (*word, *word)).collect();
                table.word(name, &words).map(|found| Self::Text(found.map(str::to_owned)))
            }
            Holds::Flag => Some(Self::Flag(table.flag(name).unwrap_or(Found::default(false)))),
            Holds::Number => table.number(name, example).map(Self::Number),
            Holds::Duration(usual) => {
                Some(Self::Duration(table.duration(name, example).unwrap_or(Found::default(usual))))
            }
            Holds::Texts => {
                Some(Self::Texts(table.texts(name, example).unwrap_or(Found::default(Vec::new()))))
            }
            Holds::Url => table.url(name, example).map(Self::Secret),
            Holds::Secret => table.secret(name).map(Self::Secret),
        }
    }
}

/// How these may be written.
pub(super) fn names(keys: &[Key]) -> Vec<String> {
    keys.iter().flat_map(Key::names).collect()
}

/// Tells that `name` is missing of what belongs together, where this kind has it at all.
fn incomplete(table: &Table<'_>, keys: &[Key], name: &str, group: &[&str]) {
    if let Some(key) = keys.iter().find(|key| key.name == name) {
        let what = format!("{} is missing: {} belong together", table.path(name), group.join(", "));
        let help = match key.names().first() {
            Some(secret) if secret != name => format!("write {secret} = {:?}", name.to_uppercase()),
            _ => format!("write {name} = {}", key.example),
        };
        table.wrong(table.line(), what, help);
    }
}
