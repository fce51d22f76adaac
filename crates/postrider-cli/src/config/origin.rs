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
    /// The origin as `config show --origin` prints it. `file` is the configuration file.
    pub(crate) fn describe(&self, file: &Path) -> String {
        match self {
            Self::Default => "default".to_owned(),
            Self::Line(line) => format!("{}:{line}", file.display()),
            Self::Env(name) => format!("env {name}"),
            Self::File(path) => format!("file {path}"),
            Self::Flag(name) => format!("flag {name}"),
        }
    }
}

/// The line of a section, for error messages. All lines are equal: a section that only moved has not changed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SectionLine(pub(crate) usize);

impl PartialEq for SectionLine {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A value of the configuration, and its origin.
#[derive(Debug, Clone)]
pub(crate) struct ConfigValue<T> {
    pub(crate) value: T,
    pub(crate) origin: Origin,
}

impl<T> ConfigValue<T> {
    pub(crate) fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    pub(crate) fn default(value: T) -> Self {
        Self::new(value, Origin::Default)
    }

    /// The line of the file that it is in.
    pub(crate) fn line(&self) -> Option<usize> {
        match self.origin {
            Origin::Line(line) => Some(line),
            _ => None,
        }
    }

    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> ConfigValue<U> {
        ConfigValue { value: change(self.value), origin: self.origin }
    }
}

impl<T> Deref for ConfigValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The same value from another line is the same setting: no component has to restart for it.
impl<T: PartialEq> PartialEq for ConfigValue<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}
