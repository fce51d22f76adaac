//! Files named by settings.

use postrider_core::Invalid;
use std::path::Path;

/// Reads the file. An unreadable file is an error of the setting, not of the first connection.
pub(crate) fn contents(setting: &'static str, file: &Path) -> Result<Vec<u8>, Invalid> {
    std::fs::read(file)
        .map_err(|error| Invalid::rule(setting, format!("{} cannot be read: {error}", file.display())))
}
