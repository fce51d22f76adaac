//! Exit codes.

use std::process::ExitCode;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Success,
    Failed,
    /// Invalid input that argument parsing cannot detect.
    Usage,
    /// Success, with warnings.
    Warnings,
    /// The requested object does not exist.
    NotFound,
    Interrupted,
    /// A code defined by the caller's protocol.
    Code(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Success => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Warnings => 3,
            Exit::NotFound => 4,
            Exit::Interrupted => 130,
            Exit::Code(code) => code,
        })
    }
}
