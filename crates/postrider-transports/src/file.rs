//! Files that settings name.

use postrider_core::Invalid;
use std::path::Path;

/// What is in it. A file that cannot be read is told when the setting is checked, and not by the first connection.
pub(crate) fn contents(setting: &'static str, file: &Path) -> Result<Vec<u8>, Invalid> {
    std::fs::read(file)
        .map_err(|error| Invalid::rule(setting, format!("{} cannot be read: {error}", file.display())))
}
