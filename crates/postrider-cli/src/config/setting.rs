//! One setting, as `postrider config show` prints it.

use super::origin::{Found, Origin};
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// All of them, without what is secret.
#[derive(Debug, Default)]
pub(crate) struct Settings(Vec<Setting>);

impl Settings {
    pub(crate) fn add<T>(&mut self, key: impl Into<String>, found: &Found<T>, shown: impl Into<Value>) {
        self.0.push(Setting { key: key.into(), value: shown.into(), origin: found.origin.clone() });
    }

    pub(crate) fn text<T: ToString>(&mut self, key: impl Into<String>, found: &Found<T>) {
        self.add(key, found, found.value.to_string());
    }
}

impl IntoIterator for Settings {
    type Item = Setting;
    type IntoIter = std::vec::IntoIter<Setting>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
