//! What the user is told when something goes wrong.

use crate::exit::Exit;
use std::fmt;

/// What went wrong, and what to do about it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    what: String,
    advice: String,
    exit: Exit,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what: what.into(), advice: advice.into(), exit: Exit::Failed }
    }

    /// The program ends like this because of it.
    pub(crate) fn ending(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// The same, where something else has to be done about it.
    pub(crate) fn helped_by(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }

    /// The same in one line, for a log.
    pub(crate) fn in_a_line(&self) -> String {
        format!("{}; {}", self.what, self.advice)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\n  help: {}", self.what, self.advice)
    }
}
