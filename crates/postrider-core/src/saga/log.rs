//! The entries of saga logs, as stores keep them.

use super::LogEntry;
use crate::Error;

/// Encodes an entry for a store.
///
/// # Errors
/// Never in practice: entries are text and numbers.
pub fn written(entry: &LogEntry) -> Result<String, Error> {
    serde_json::to_string(entry).map_err(|error| Error::Other(error.into()))
}

/// Decodes an entry of a store.
///
/// # Errors
/// When another version wrote it, or somebody changed it.
pub fn read(text: &str) -> Result<LogEntry, Error> {
    serde_json::from_str(text).map_err(|error| Error::Other(error.into()))
}
