//! What a resolver knows a subject by.

use crate::{Headers, Invalid};
use std::{collections::BTreeMap, fmt};

const KIND: &str = "followup-kind";
const VALUE: &str = "followup-value";
const EXTRA: &str = "followup-extra";

/// What a resolver knows a subject by: a customer's number there, an address, a folder.
#[derive(Clone, PartialEq, Eq)]
pub struct Reference {
    kind: String,
    value: String,
    extra: BTreeMap<String, String>,
}

impl Reference {
    /// A reference of a kind, such as `customer`, and its value there.
    pub fn new(kind: impl Into<String>, value: impl Into<String>) -> Self {
        Self { kind: kind.into(), value: value.into(), extra: BTreeMap::new() }
    }

    /// With something else that belongs to it, such as a region.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }

    /// Of what kind it is.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Its value.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// What belongs to it.
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
        let lacks = |what: &'static str| move || Invalid::rule(what, "is missing: no follow-up goes without");
        let extra = match headers.get(EXTRA) {
            None => BTreeMap::new(),
            // What serde says may quote it.
            Some(text) => serde_json::from_str(text)
                .map_err(|_| Invalid::rule(EXTRA, "is no JSON object whose values are texts"))?,
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
