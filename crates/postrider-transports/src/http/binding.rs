//! Header names that the transport and the source share.

use super::signature;

/// The prefix of CloudEvents attributes.
pub(super) const EVENT: &str = "ce-";

/// Headers that belong to the request itself, not to its message.
pub(super) const REQUEST_HEADERS: &[&str] = &[
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
