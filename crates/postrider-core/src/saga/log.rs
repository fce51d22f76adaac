//! The logs of sagas.

use super::LogEntry;
use crate::{Error, MessageId};
use std::future::Future;

/// Reads and appends saga logs in the caller's transaction of type `Tx`.
///
/// A log exists while its saga runs. The transaction that ends the saga deletes it; the outcome is in the ledger.
pub trait SagaLog<Tx> {
    /// The log of a saga, oldest first. Reading locks the saga until the transaction ends.
    fn read_log(
        &self,
        tx: &mut Tx,
        saga: MessageId,
    ) -> impl Future<Output = Result<Vec<LogEntry>, Error>> + Send;

    /// Appends an entry to a log that was read in the same transaction and had `after` entries.
    fn append_log(
        &self,
        tx: &mut Tx,
        saga: MessageId,
        after: usize,
        entry: &LogEntry,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Deletes the log of a finished saga.
    fn forget_log(&self, tx: &mut Tx, saga: MessageId) -> impl Future<Output = Result<(), Error>> + Send;
}

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
/// When it is of another version, or somebody has been at it.
pub fn read(text: &str) -> Result<LogEntry, Error> {
    serde_json::from_str(text).map_err(|error| Error::Other(error.into()))
}
