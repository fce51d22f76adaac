//! Headers of a message.

use crate::{
    Invalid, Problem,
    limits::{self, Charset},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Reserved names: fields of the message, and prefixes that transports write.
const RESERVED: &[&str] =
    &["content-type", "correlation-id", "causation-id", "traceparent", "tracestate", "hlc"];
const RESERVED_PREFIXES: &[&str] = &["ce-", "ce_", "postrider-"];

/// The headers of a message: names in lower case, sorted, each with one value.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    /// No headers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Headers as a store kept them, not validated.
    pub fn stored(map: BTreeMap<String, String>) -> Self {
        Self(map)
    }

    /// Sets `name` to `value`; a second value replaces the first.
    ///
    /// # Errors
    /// When the name is not a token (letters, digits, `-`, `_`, `.`), is reserved, or a limit is broken.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Result<(), Invalid> {
        let (mut name, value) = (name.into(), value.into());
        name.make_ascii_lowercase();
        check_name(&name)?;
        if !value.is_empty() {
            limits::text(format!("header {name:?}"), limits::HEADER_VALUE_BYTES, Charset::Line, &value)?;
        }
        self.0.insert(name, value);
        if self.0.len() > limits::HEADER_COUNT {
            let problem = Problem::TooMany { actual: self.0.len(), limit: limits::HEADER_COUNT };
            return Err(Invalid::new("headers", problem));
        }
        Ok(())
    }

    /// Sets a reserved header without validation. Databases cannot store a NUL in text.
    pub(crate) fn set_own(&mut self, name: &'static str, value: &str) {
        self.0.insert(name.to_owned(), value.replace('\0', "\u{fffd}"));
    }

    /// The value of `name`, which is looked up in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// Every header, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are no headers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn check_name(name: &str) -> Result<(), Invalid> {
    limits::text("header name", limits::HEADER_NAME_BYTES, Charset::Word, name)?;
    if let Some((at, found)) =
        name.char_indices().find(|(_, c)| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')))
    {
        let allowed = "letters, digits, '-', '_' and '.' are allowed";
        return Err(Invalid::new(format!("header name {name:?}"), Problem::Character { found, at, allowed }));
    }
    if RESERVED.contains(&name) || RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return Err(Invalid::rule(
            format!("header {name:?}"),
            "is reserved: set the message's own field, or choose another name",
        ));
    }
    Ok(())
}

impl TryFrom<BTreeMap<String, String>> for Headers {
    type Error = Invalid;

    fn try_from(map: BTreeMap<String, String>) -> Result<Self, Invalid> {
        let mut headers = Self::new();
        for (name, value) in map {
            headers.insert(name, value)?;
        }
        Ok(headers)
    }
}
