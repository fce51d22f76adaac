//! The reference by which a resolver knows a subject.

use crate::{Headers, Invalid};
use std::{collections::BTreeMap, fmt};

const KIND: &str = "followup-kind";
const VALUE: &str = "followup-value";
const EXTRA: &str = "followup-extra";

/// The reference by which a resolver knows a subject: a customer number, an address, a folder.
#[derive(Clone, PartialEq, Eq)]
pub struct Reference {
    kind: String,
    value: String,
    extra: BTreeMap<String, String>,
}

impl Reference {
    /// A reference of a kind, such as `customer`, with its value.
    pub fn new(kind: impl Into<String>, value: impl Into<String>) -> Self {
        Self { kind: kind.into(), value: value.into(), extra: BTreeMap::new() }
    }

    /// Adds a further value, such as a region.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }

    /// The kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The further values.
    pub fn extra(&self) -> &BTreeMap<String, String> {
        &self.extra
    }

    pub(super) fn headers(&self) -> Result<Vec<(&'static str, String)>, Invalid> {
        let mut headers = vec![(KIND, self.kind.clone()), (VALUE, self.value.clone())];
        if !self.extra.is_empty() {
            let extra = serde_json::to_string(&self.extra)
                .map_err(|error| Invalid::rule(EXTRA, format!("cannot be written as JSON: {error}")))?;
            headers.push((EXTRA, extra));
        }
        Ok(headers)
    }

    pub(super) fn read(headers: &Headers) -> Result<Self, Invalid> {
        let lacks = |what: &'static str| move || Invalid::rule(what, "is missing: every follow-up needs it");
        let extra = match headers.get(EXTRA) {
            None => BTreeMap::new(),
            // The text of serde's error may quote the value.
            Some(text) => serde_json::from_str(text)
                .map_err(|_| Invalid::rule(EXTRA, "must be a JSON object whose values are strings"))?,
        };
        Ok(Self {
            kind: headers.get(KIND).ok_or_else(lacks(KIND))?.to_owned(),
            value: headers.get(VALUE).ok_or_else(lacks(VALUE))?.to_owned(),
            extra,
        })
    }
}

impl fmt::Debug for Reference {
    /// Shows its kind and nothing else: it may carry personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reference").field("kind", &self.kind).finish_non_exhaustive()
    }
}
