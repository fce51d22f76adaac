//! How the program ends.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Well,
    Failed,
    /// Called wrongly, in a way that the arguments alone do not show.
    Misused,
    /// It works, and something should be seen to.
    Warned,
    /// What was asked for is not there.
    NotFound,
    Interrupted,
    /// As whoever called it counts.
    Code(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Well => 0,
            Exit::Failed => 1,
            Exit::Misused => 2,
            Exit::Warned => 3,
            Exit::NotFound => 4,
            Exit::Interrupted => 130,
            Exit::Code(code) => code,
        })
    }
}
