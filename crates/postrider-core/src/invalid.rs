//! The error for invalid input: it names the field, the rule and the limit.

use std::borrow::Cow;

/// Invalid input. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    field: Cow<'static, str>,
    problem: Problem,
}

/// The rule that a field breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The field is required.
    #[error("must not be empty")]
    Empty,
    /// The field is longer than its limit.
    #[error("is {actual} bytes long; at most {limit} bytes are allowed")]
    TooLong {
        /// The actual length.
        actual: usize,
        /// The largest allowed length.
        limit: usize,
    },
    /// There are more entries than the limit.
    #[error("has {actual} entries; at most {limit} are allowed")]
    TooMany {
        /// The actual number.
        actual: usize,
        /// The largest allowed number.
        limit: usize,
    },
    /// A character that the field does not allow.
    #[error("contains {found:?} at byte {at}; {allowed}")]
    Character {
        /// The offending character.
        found: char,
        /// Its position in bytes.
        at: usize,
        /// The allowed characters.
        allowed: &'static str,
    },
    /// Any other rule, in words.
    #[error("{0}")]
    Rule(Cow<'static, str>),
}

impl Invalid {
    /// `field` breaks a rule.
    pub fn new(field: impl Into<Cow<'static, str>>, problem: Problem) -> Self {
        Self { field: field.into(), problem }
    }

    /// `field` breaks a rule that is given as text.
    pub fn rule(field: impl Into<Cow<'static, str>>, rule: impl Into<Cow<'static, str>>) -> Self {
        Self::new(field, Problem::Rule(rule.into()))
    }

    /// The invalid field, as users know it: `queue`, `due_at`, `header "x"`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// The rule it breaks.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The same error for one message of a batch.
    #[must_use]
    pub fn in_message(self, index: usize) -> Self {
        Self { field: format!("message {index}: {}", self.field).into(), problem: self.problem }
    }
}
