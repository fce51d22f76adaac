//! A value of a key: read from TOML by the key's type, and printed without secrets.

use super::{
    key_type::{Key, ValueType},
    listen::Listen,
    secret::Secret,
    section::Section,
};
use crate::{database::Database, duration, rate::Rate};
use std::time::Duration;
use toml::de::DeValue;

/// A key within this edit distance of a known one is taken for a typo of it, unless the distance is more than half of its length.
const MAX_TYPO_DISTANCE: usize = 3;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    String(String),
    Flag(bool),
    Number(u32),
    Decimal(f64),
    Duration(Duration),
    Rate(Rate),
    Strings(Vec<String>),
    Numbers(Vec<u32>),
    Durations(Vec<Duration>),
    Listen(Listen),
    Secret(Secret),
    /// The URL of a server, or the path of a file.
    Database(Secret),
    Table(Section),
    /// Tables by name, or the tables of a list by number, from 1.
    Tables(Vec<(String, Section)>),
}

/// What is wrong with a value, and what to write instead.
#[derive(Debug)]
pub(super) struct Mistake {
    pub(super) what: String,
    pub(super) help: String,
}

impl Mistake {
    pub(super) fn new(what: impl Into<String>, help: impl Into<String>) -> Self {
        Self { what: what.into(), help: help.into() }
    }

    /// The value of `key` at this path is not what was expected.
    fn wrong_type(key: &Key, path: &str, value: &DeValue<'_>, expected: &str) -> Self {
        let what = format!("{path} is {}; it must be {expected}", describe_type(value));
        Self::new(what, format!("write {} = {}", key.name, key.example))
    }
}

impl Value {
    /// Reads the value of `key` at this path. Tables are read elsewhere.
    pub(super) fn parse(key: &Key, path: &str, value: &DeValue<'_>) -> Result<Self, Mistake> {
        let wrong_type = |expected| Mistake::wrong_type(key, path, value, expected);
        let text = || value.as_str().ok_or_else(|| wrong_type("a string"));
        let texts = || list(value, |each| each.as_str()).ok_or_else(|| wrong_type("a list of strings"));
        let invalid = |help| Mistake::new(format!("invalid {path}"), help);
        Ok(match key.value_type {
            ValueType::String | ValueType::Reference(_) => Self::String(text()?.to_owned()),
            ValueType::Choice(words) => {
                let text = text()?;
                if !words.contains(&text) {
                    return Err(Mistake::new(format!("{path} cannot be {text:?}"), suggest(text, words)));
                }
                Self::String(text.to_owned())
            }
            ValueType::Flag => Self::Flag(value.as_bool().ok_or_else(|| wrong_type("true or false"))?),
            ValueType::Number => {
                let number = whole_number(value).filter(|number| *number > 0);
                Self::Number(number.ok_or_else(|| wrong_type("a whole number of at least 1"))?)
            }
            ValueType::Decimal => Self::Decimal(decimal(value).ok_or_else(|| wrong_type("a number"))?),
            ValueType::Duration => Self::Duration(duration::parse(text()?).map_err(invalid)?),
            ValueType::Rate => Self::Rate(text()?.parse().map_err(invalid)?),
            ValueType::Strings => Self::Strings(texts()?.into_iter().map(str::to_owned).collect()),
            ValueType::Numbers => {
                let numbers = list(value, whole_number);
                Self::Numbers(numbers.ok_or_else(|| wrong_type("a list of whole numbers"))?)
            }
            ValueType::Durations => {
                let durations: Result<_, _> = texts()?.into_iter().map(duration::parse).collect();
                let what = || format!("{path} has an invalid duration");
                Self::Durations(durations.map_err(|help| Mistake::new(what(), help))?)
            }
            ValueType::Listen => {
                let text = text()?;
                let listen = text.parse();
                Self::Listen(
                    listen.map_err(|help: String| Mistake::new(format!("invalid {path}: {text:?}"), help))?,
                )
            }
            ValueType::Url | ValueType::Secret => Self::Secret(Secret::new(text()?)),
            ValueType::Database => Self::Database(Secret::new(text()?)),
            ValueType::Table(_) | ValueType::Tables(_) | ValueType::NamedTables(_) => {
                return Err(wrong_type("a table"));
            }
        })
    }

    /// The texts that a rule of the key applies to.
    pub(super) fn texts(&self) -> Vec<&str> {
        match self {
            Self::String(text) => vec![text],
            Self::Strings(texts) => texts.iter().map(String::as_str).collect(),
            Self::Secret(secret) | Self::Database(secret) => vec![secret.reveal()],
            _ => Vec::new(),
        }
    }

    /// The value as `config show` prints it.
    pub(super) fn printed(&self) -> serde_json::Value {
        let duration = |duration: &Duration| format!("{duration:?}");
        match self {
            Self::String(text) => text.as_str().into(),
            Self::Flag(flag) => (*flag).into(),
            Self::Number(number) => (*number).into(),
            Self::Decimal(number) => (*number).into(),
            Self::Duration(each) => duration(each).into(),
            Self::Rate(rate) => rate.to_string().into(),
            Self::Strings(texts) => texts.clone().into(),
            Self::Numbers(numbers) => numbers.clone().into(),
            Self::Durations(each) => each.iter().map(duration).collect(),
            Self::Listen(listen) => listen.to_string().into(),
            Self::Secret(secret) => secret.to_string().into(),
            Self::Database(secret) => {
                let database = secret.reveal().parse();
                database.map_or_else(|_| secret.to_string(), |database: Database| database.to_string()).into()
            }
            Self::Table(_) | Self::Tables(_) => serde_json::Value::Null,
        }
    }
}

fn list<'v, 'd, T>(value: &'v DeValue<'d>, read: impl Fn(&'v DeValue<'d>) -> Option<T>) -> Option<Vec<T>> {
    value.as_array()?.iter().map(|each| read(each.get_ref())).collect()
}

fn whole_number(value: &DeValue<'_>) -> Option<u32> {
    let number = value.as_integer()?;
    u32::from_str_radix(number.as_str(), number.radix()).ok()
}

/// A number that may have a fraction.
fn decimal(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => number.as_str().parse().ok(),
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

/// The type of a value. A string is not repeated: it may be a password.
pub(super) fn describe_type(value: &DeValue<'_>) -> String {
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
pub(super) fn suggest(found: &str, known: &[&str]) -> String {
    let all = format!("known: {}", known.join(", "));
    let near = known.iter().map(|word| (strsim::osa_distance(found, word), word)).min();
    match near {
        Some((distance, word)) if distance <= MAX_TYPO_DISTANCE && distance * 2 <= word.len() => {
            format!("did you mean {word:?}? ({all})")
        }
        _ => all,
    }
}
