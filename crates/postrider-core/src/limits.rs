//! All limits and character rules.

use crate::{Invalid, Message, Problem};
use std::time::{Duration, SystemTime};

/// Bytes allowed in a queue, key, timer, tenant, subject, type, consumer or correlation id.
pub const NAME_BYTES: usize = 255;
/// Bytes allowed in a header's name.
pub const HEADER_NAME_BYTES: usize = 128;
/// Bytes allowed in a header's value.
pub const HEADER_VALUE_BYTES: usize = 8 * 1024;
/// Headers allowed on one message.
pub const HEADER_COUNT: usize = 64;
/// Bytes allowed in a `tracestate`: the size that its standard asks to propagate.
pub const TRACESTATE_BYTES: usize = 512;
/// Bytes of error text kept with a failed message.
pub const ERROR_BYTES: usize = 8 * 1024;
/// The farthest due time: a hundred years ahead, so that no database overflows.
pub const FARTHEST_DUE: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);
/// The shortest useful lease over a network.
pub const SHORTEST_LEASE: Duration = Duration::from_millis(10);
/// The longest lease: a crashed worker's messages wait this long.
pub const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// Size limits that a deployment may change. Checked when a message is staged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    payload_bytes: usize,
    batch_bytes: usize,
}

impl Default for Limits {
    /// 16 MiB a payload, 256 MiB a batch.
    fn default() -> Self {
        Self { payload_bytes: 16 << 20, batch_bytes: 256 << 20 }
    }
}

impl Limits {
    /// Allows payloads of up to `bytes`.
    #[must_use]
    pub fn with_payload_bytes(mut self, bytes: usize) -> Self {
        self.payload_bytes = bytes;
        self
    }

    /// Allows batches whose payloads add up to `bytes`.
    #[must_use]
    pub fn with_batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// Checks a batch that is about to be staged. Names and headers were checked when each message was built.
    ///
    /// # Errors
    /// Names the message and the limit that it breaks.
    pub fn check(&self, messages: &[Message]) -> Result<(), Invalid> {
        let alone = messages.len() == 1;
        let mut total = 0_usize;
        for (index, message) in messages.iter().enumerate() {
            let actual = message.payload().len();
            if actual > self.payload_bytes {
                let invalid = Invalid::new("payload", Problem::TooLong { actual, limit: self.payload_bytes });
                return Err(if alone { invalid } else { invalid.in_message(index) });
            }
            total = total.saturating_add(actual);
        }
        if total > self.batch_bytes {
            return Err(Invalid::rule(
                "batch",
                format!(
                    "its payloads add up to {total} bytes; at most {} are allowed in one call: stage it in parts, \
                     inside the same transaction",
                    self.batch_bytes
                ),
            ));
        }
        Ok(())
    }
}

/// The characters that a name may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charset {
    /// One word in logs, metrics and protocols.
    Word,
    /// Any text on one line.
    Line,
}

pub(crate) fn name(field: &'static str, charset: Charset, value: &str) -> Result<(), Invalid> {
    text(field, NAME_BYTES, charset, value)
}

pub(crate) fn text(
    field: impl Into<std::borrow::Cow<'static, str>>,
    limit: usize,
    charset: Charset,
    value: &str,
) -> Result<(), Invalid> {
    let problem = if value.is_empty() {
        Problem::Empty
    } else if value.len() > limit {
        Problem::TooLong { actual: value.len(), limit }
    } else {
        let (bad, allowed): (fn(char) -> bool, _) = match charset {
            Charset::Word => (
                |c| c.is_control() || c.is_whitespace(),
                "neither white space nor control characters are allowed",
            ),
            Charset::Line => (char::is_control, "control characters are not allowed"),
        };
        match value.char_indices().find(|(_, c)| bad(*c)) {
            Some((at, found)) => Problem::Character { found, at, allowed },
            None => return Ok(()),
        }
    };
    Err(Invalid::new(field, problem))
}

pub(crate) fn due_after(after: Duration) -> Result<(), Invalid> {
    if after > FARTHEST_DUE {
        return Err(Invalid::rule("due_after", "lies more than 100 years ahead"));
    }
    Ok(())
}

pub(crate) fn due_at(at: SystemTime) -> Result<(), Invalid> {
    let Ok(since_epoch) = at.duration_since(SystemTime::UNIX_EPOCH) else {
        return Err(Invalid::rule("due_at", "lies before 1970; leave it out for a message that is due now"));
    };
    // No clock here, so "a hundred years from 2026" stands for a hundred years from now.
    if since_epoch > FARTHEST_DUE.saturating_mul(2) {
        return Err(Invalid::rule("due_at", "lies after the year 2170"));
    }
    Ok(())
}

pub(crate) fn lease_for(lease: Duration) -> Result<(), Invalid> {
    if lease < SHORTEST_LEASE || lease > LONGEST_LEASE {
        return Err(Invalid::rule(
            "lease_for",
            format!("is {lease:?}; it must lie between {SHORTEST_LEASE:?} and 24 hours"),
        ));
    }
    Ok(())
}

/// The longest part of `text` of at most `limit` bytes that does not split a character.
pub fn truncated(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
