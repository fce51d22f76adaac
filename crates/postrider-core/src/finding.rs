//! Findings of a check of a destination, a source or a store, with their fixes.

use std::fmt;

/// A condition of a destination, a source or a store that endangers delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// A stable code: `unroutable`, `discard_old`, …
    pub code: &'static str,
    /// The destination, queue, stream, table or setting.
    pub subject: String,
    /// The condition and its consequence.
    pub reason: String,
    /// The fix: a statement, a command or a setting, ready to be run or written.
    pub fix: String,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Information.
    Note,
    /// Messages can be lost when something else fails, or are delayed.
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
    /// A finding of any severity.
    pub fn of(severity: Severity, code: &'static str, subject: impl Into<String>) -> Self {
        Self::new(severity, code, subject.into())
    }

    /// Information about `subject`.
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

    /// Sets the condition and its consequence.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets the fix.
    #[must_use]
    pub fn fixed_by(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }
}
