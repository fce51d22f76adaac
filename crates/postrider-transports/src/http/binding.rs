//! The names that the two ways have in common.

use super::signature;

/// What CloudEvents attributes begin with.
pub(super) const EVENT: &str = "ce-";

/// What belongs to a request itself, not to its message.
pub(super) const OF_REQUESTS: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    signature::ID,
    signature::TIMESTAMP,
    signature::SIGNATURE,
];
