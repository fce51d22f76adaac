//! What SQS and SNS have in common: the account, the wire, batches and their answers.
//!
//! Both take up to ten messages in a request and answer for each by its id. The rest of this module is what follows from that.
//!
//! - A message is written as a body and at most ten attributes (`wire.rs`).
//! - A batch is cut into requests by count and by bytes, and for FIFO into rounds: a request has at most one message of each group,
//!   and the next one of a group is sent when the one before was accepted (`plan.rs`, `halted.rs`).
//! - An answer counts for the id that it names and for nothing else (`listed.rs`).
//! - What is wrong decides what is to be done next (`trouble.rs`).
//!
//! The client's own retries are off: the relay retries, and its store remembers.

pub(crate) mod client;
mod courier;
mod halted;
mod listed;
mod options;
pub(crate) mod plan;
mod trouble;
pub(crate) mod wire;

pub use options::AwsOptions;

pub(crate) use courier::{Courier, Service};
pub(crate) use listed::{Listed, Refused};
pub(crate) use trouble::{Kind, Trouble};
pub(crate) use wire::{Entry, STRING};

/// Whether that can be the name of a queue or topic, with `.fifo` at most so many characters long.
pub(crate) fn is_name(destination: &str, most: usize) -> bool {
    let stem = destination.strip_suffix(".fifo").unwrap_or(destination);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !stem.is_empty() && destination.len() <= most && stem.bytes().all(is_plain)
}
