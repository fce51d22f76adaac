//! Where a setting comes from.

use std::{ops::Deref, path::Path};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Default,
    /// A line of the configuration file.
    Line(usize),
    Env(String),
    /// Another file, which a line of the configuration file names.
    File(String),
    Flag(&'static str),
}

impl Origin {
    /// In words. `file` is the configuration file.
    pub(crate) fn told(&self, file: &Path) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Line(line) => format!("{}:{line}", file.display()),
            Self::Env(name) => format!("env {name}"),
            Self::File(path) => format!("file {path}"),
            Self::Flag(name) => format!("flag {name}"),
        }
    }
}

/// Where a section stands, for whoever cannot build it. The same section elsewhere is no change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line(pub(crate) usize);

impl PartialEq for Line {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A value, and where it was found.
#[derive(Debug, Clone)]
pub(crate) struct Found<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> Found<T> {
    pub(crate) fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    pub(crate) fn default(value: T) -> Self {
        Self::new(value, Origin::Default)
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Found<U> {
        Found { value: change(self.value), origin: self.origin }
    }
}

impl<T> Deref for Found<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The same value from another line is the same setting: nothing has to be started anew for it.
impl<T: PartialEq> PartialEq for Found<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}
