//! The parts that SQS and SNS share: account settings, the wire format, batch requests and their results.
//!
//! Both services accept up to ten messages in a request and return a result for each by its id. The rest of this module follows from that.
//!
//! - A message is encoded as a body and at most ten attributes (`wire.rs`).
//! - A batch is split into requests by count and by bytes, and for FIFO into rounds: a request has at most one message of each group,
//!   and the next message of a group is sent when the one before was accepted (`batch.rs`, `failed_groups.rs`).
//! - A result counts for the id that it names and for no other (`batch_result.rs`).
//! - Errors are classified by what has to be done next (`error.rs`).
//!
//! The client's own retries are off: the relay retries, and its store counts the attempts.

pub(crate) mod batch;
mod batch_result;
pub(crate) mod client;
mod error;
mod failed_groups;
mod http;
mod options;
mod publisher;
pub(crate) mod wire;

pub use options::AwsOptions;

pub(crate) use batch_result::{BatchResult, FailedEntry};
pub(crate) use error::{FailureKind, ServiceError};
pub(crate) use publisher::{Publisher, Service};
pub(crate) use wire::{BatchEntry, STRING};

/// Whether this is a valid name of a queue or topic, with at most `max_length` characters including `.fifo`.
pub(crate) fn is_name(destination: &str, max_length: usize) -> bool {
    let stem = destination.strip_suffix(".fifo").unwrap_or(destination);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !stem.is_empty() && destination.len() <= max_length && stem.bytes().all(is_plain)
}
