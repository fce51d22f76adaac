//! What a look at a destination, a source or a store finds, and what mends it.

use std::fmt;

/// Something about a destination, a source or a store that matters for the promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What it is, in one word that never changes: `unroutable`, `discard_old`, …
    pub code: &'static str,
    /// Which destination, queue, stream, table or setting.
    pub subject: String,
    /// What is wrong and what it leads to.
    pub reason: String,
    /// What mends it: a statement, a command or a setting, as it is to be run or written.
    pub fix: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Messages can be lost when something else fails, or are held up.
    Warning,
    /// Messages are lost, or cannot be sent.
    Problem,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

impl Finding {
    /// About `subject`, as bad as `severity` says.
    pub fn of(severity: Severity, code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(severity, code, subject.into())
    }

    /// Worth knowing about `subject`.
    pub fn note(code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(Severity::Note, code, subject.into())
    }

    /// Messages of `subject` can be lost when something else fails.
    pub fn warning(code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, subject.into())
    }

    /// Messages of `subject` are lost, or cannot be sent.
    pub fn problem(code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(Severity::Problem, code, subject.into())
    }

    fn new(severity: Severity, code: &'static str, subject: String) -> Self {
        Self { severity, code, subject, reason: String::new(), fix: String::new() }
    }

    /// What is wrong and what it leads to.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// What mends it.
    #[must_use]
    pub fn fixed_by(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }
}
