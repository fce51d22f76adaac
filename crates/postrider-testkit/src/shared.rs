//! The servers that all tests of a run share, and the folders of their programs.

use postrider_servers::Kind;
use std::path::PathBuf;

/// The URL of a shared server. A missing server fails the run; tests are never skipped.
///
/// # Panics
/// When the variable is not set.
pub fn url(kind: Kind) -> String {
    let variable = kind.url_variable();
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    url.unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`, which starts {kind}"))
}

/// The folder of a server's programs, for starting a private server.
///
/// # Panics
/// When the variable is not set.
pub fn programs(kind: Kind) -> PathBuf {
    let variable = kind.programs_variable();
    let folder = std::env::var_os(variable).filter(|folder| !folder.is_empty());
    let missing = || panic!("{variable} is not set: run `cargo xtask test`, which knows where {kind} is");
    folder.map_or_else(missing, PathBuf::from)
}
