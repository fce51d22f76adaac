//! The effective settings, as `postrider config show` prints them.

use super::origin::{ConfigValue, Origin};
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) key: String,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// All effective settings, without secrets.
#[derive(Debug, Default)]
pub(crate) struct Settings(Vec<Setting>);

impl Settings {
    pub(crate) fn add<T>(
        &mut self,
        key: impl Into<String>,
        value: &ConfigValue<T>,
        printed: impl Into<Value>,
    ) {
        self.0.push(Setting { key: key.into(), value: printed.into(), origin: value.origin.clone() });
    }
}

impl IntoIterator for Settings {
    type Item = Setting;
    type IntoIter = std::vec::IntoIter<Setting>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}
