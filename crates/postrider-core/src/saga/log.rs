//! The static seam to the logs of sagas.

use super::Entry;
use crate::{Error, MessageId};
use std::future::Future;

/// Reads and appends the logs of sagas in a transaction of type `Tx` that belongs to the caller.
///
/// A log is there for as long as its saga is under way. It goes with the transaction in which that ends: what became of it is in the ledger.
pub trait SagaLog<Tx> {
    /// The log of a saga, oldest first. Whoever has read it has the saga for itself until the transaction ends.
    fn read_log(
        &self,
        tx: &mut Tx,
        saga: MessageId,
    ) -> impl Future<Output = Result<Vec<Entry>, Error>> + Send;

    /// Appends an entry to a log that was read in the same transaction, and had so many entries then.
    fn append_log(
        &self,
        tx: &mut Tx,
        saga: MessageId,
        after: usize,
        entry: &Entry,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Removes the log of a saga that has ended.
    fn forget_log(&self, tx: &mut Tx, saga: MessageId) -> impl Future<Output = Result<(), Error>> + Send;
}

/// An entry as stores keep it.
///
/// # Errors
/// Never, as entries are: they hold texts and numbers.
pub fn written(entry: &Entry) -> Result<String, Error> {
    serde_json::to_string(entry).map_err(|error| Error::Other(error.into()))
}

/// Reads an entry as stores keep it.
///
/// # Errors
/// When it is of another version, or somebody has been at it.
pub fn read(text: &str) -> Result<Entry, Error> {
    serde_json::from_str(text).map_err(|error| Error::Other(error.into()))
}
