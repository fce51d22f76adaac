//! How the program ends.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Well,
    Failed,
    /// Called wrongly, in a way that the arguments alone do not show.
    Misused,
    /// What was asked for is not there.
    NotFound,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Well => 0,
            Exit::Failed => 1,
            Exit::Misused => 2,
            Exit::NotFound => 4,
            Exit::Interrupted => 130,
        })
    }
}
