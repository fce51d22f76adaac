//! Decoding received messages, and the identity by which they are deduplicated.

use postrider_core::{DecodedMessage, Incoming, Invalid, QueueName};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Returns the identity of a received message, if it has one of its own.
pub(super) type DeduplicateBy = Arc<dyn Fn(&Incoming) -> Option<String> + Send + Sync>;

pub(super) struct Decoder {
    /// The queue that messages are decoded for: that of the dead letters.
    pub(super) queue: QueueName,
    pub(super) deduplicate_by: Option<DeduplicateBy>,
}

impl Decoder {
    pub(super) fn decode(&self, incoming: &Incoming) -> Result<DecodedMessage, Invalid> {
        match self.identity(incoming)? {
            Some(id) => incoming.read_as(&self.queue, &id),
            None => incoming.read(&self.queue),
        }
    }

    /// User functions may panic: that must not stop the consumer.
    fn identity(&self, incoming: &Incoming) -> Result<Option<String>, Invalid> {
        let Some(deduplicate_by) = &self.deduplicate_by else { return Ok(None) };
        catch_unwind(AssertUnwindSafe(|| deduplicate_by(incoming)))
            .map_err(|_| Invalid::rule("id", "is unknown: the function of `deduplicate_by` panicked"))
    }
}
