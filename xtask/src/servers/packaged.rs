//! A server that comes as a Debian package.

use std::env;
use std::path::{Path, PathBuf};

/// A program and its Debian package.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packaged {
    pub(crate) program: &'static str,
    /// The folder where Debian installs it, if that is not on every `PATH`. Searched first.
    pub(crate) folder: Option<&'static str>,
    pub(crate) package: &'static str,
}

impl Packaged {
    /// The folder that holds the program.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        let path = env::var_os("PATH").unwrap_or_default();
        let known = self.folder.map(PathBuf::from);
        known.into_iter().chain(env::split_paths(&path)).find(|folder| self.is_in(folder))
    }

    fn is_in(&self, folder: &Path) -> bool {
        folder.join(self.program).is_file()
    }
}
