//! How the program ends.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Well,
    Failed,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Well => 0,
            Exit::Failed => 1,
            Exit::Interrupted => 130,
        })
    }
}
