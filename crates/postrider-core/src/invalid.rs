//! The one error for input that breaks a rule: it names the field, the rule and the limit.

use std::borrow::Cow;

/// Input that breaks a rule. Nothing was stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Invalid {
    field: Cow<'static, str>,
    problem: Problem,
}

/// What is wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The field is required.
    #[error("must not be empty")]
    Empty,
    /// The field is longer than its limit.
    #[error("is {actual} bytes long; at most {limit} bytes are allowed")]
    TooLong {
        /// How long it is.
        actual: usize,
        /// How long it may be.
        limit: usize,
    },
    /// There are more entries than the limit.
    #[error("has {actual} entries; at most {limit} are allowed")]
    TooMany {
        /// How many there are.
        actual: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A character that the field does not allow.
    #[error("contains {found:?} at byte {at}; {allowed}")]
    Character {
        /// The offending character.
        found: char,
        /// Where it stands.
        at: usize,
        /// What is allowed instead.
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

    /// `field` breaks a rule that is told in words.
    pub fn rule(field: impl Into<Cow<'static, str>>, rule: impl Into<Cow<'static, str>>) -> Self {
        Self::new(field, Problem::Rule(rule.into()))
    }

    /// The field that is wrong, as users know it: `queue`, `due_at`, `header "x"`.
    pub fn field(&self) -> &str {
        &self.field
    }

    /// What is wrong with it.
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The same problem, told of one message of a batch.
    #[must_use]
    pub fn in_message(self, index: usize) -> Self {
        Self { field: format!("message {index}: {}", self.field).into(), problem: self.problem }
    }
}
