//! Classifies JetStream's replies as publish results.

use async_nats::{
    Message, StatusCode,
    client::{PublishError as ClientError, PublishErrorKind},
    jetstream::{self, ErrorCode},
};
use postrider_core::{PublishError, Receipt};
use serde::Deserialize;
use std::borrow::Cow;

pub(super) type PublishResult = Result<Receipt, PublishError>;

/// A header block above 64 kB. The client has no constant for it.
const HEADERS_TOO_LARGE: ErrorCode = ErrorCode(10097);

/// The server or the account has no memory or storage left for JetStream.
const INSUFFICIENT_RESOURCES: ErrorCode = ErrorCode(10023);
const STORAGE_RESOURCES_EXCEEDED: ErrorCode = ErrorCode(10047);

/// A stream's publish acknowledgement.
#[derive(Deserialize)]
struct PubAck<'s> {
    error: Option<jetstream::Error>,
    #[serde(borrow, default)]
    stream: Cow<'s, str>,
    #[serde(rename = "seq")]
    sequence: Option<u64>,
    #[serde(default)]
    duplicate: bool,
}

/// The publish result of a message to `subject`.
pub(super) fn classify_reply(message: &Message, subject: &str, expected: Option<&str>) -> PublishResult {
    if message.status == Some(StatusCode::NO_RESPONDERS) {
        return Err(no_stream_error(subject));
    }
    let unreadable = |why: &dyn std::fmt::Display| {
        PublishError::unknown(format!("the publish acknowledgement cannot be parsed: {why}"))
    };
    let ack: PubAck<'_> = serde_json::from_slice(&message.payload).map_err(|error| unreadable(&error))?;
    if let Some(error) = ack.error {
        return Err(classify_api_error(&error, subject));
    }
    if ack.sequence.is_none() {
        return Err(unreadable(&"it has no stream sequence"));
    }
    // Any subscriber of a subject may reply, not only streams.
    if ack.stream.is_empty() || expected.is_some_and(|stream| stream != ack.stream) {
        let text = format!("{:?} acknowledged the message, which is not the expected stream", ack.stream);
        return Err(PublishError::unknown(text));
    }
    Ok(if ack.duplicate { Receipt::duplicate() } else { Receipt::new() })
}

/// The client did not accept the message for sending.
pub(super) fn classify_send_error(error: &ClientError) -> PublishError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => PublishError::reject(error.to_string()).named("TooLarge"),
        PublishErrorKind::InvalidSubject => PublishError::reject(error.to_string()).named("InvalidSubject"),
        PublishErrorKind::Send => PublishError::unavailable(error.to_string()),
    }
}

/// JetStream refused the message.
fn classify_api_error(error: &jetstream::Error, subject: &str) -> PublishError {
    match error.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | HEADERS_TOO_LARGE => {
            PublishError::reject(error.to_string()).named("TooLarge")
        }
        ErrorCode::STREAM_NOT_FOUND => no_stream_error(subject),
        ErrorCode::STREAM_NOT_MATCH => PublishError::retry(format!(
            "{error}: another stream has the subject {subject}; set `with_stream` to its name, or move the subject"
        ))
        .named("OtherStream"),
        INSUFFICIENT_RESOURCES | STORAGE_RESOURCES_EXCEEDED => {
            PublishError::unavailable(format!("{error}: raise the server's limits of JetStream, or free storage"))
        }
        _ => PublishError::retry(error.to_string()),
    }
}

/// The server's last error says that this subject may not be published to. The server has dropped the message.
pub(super) fn permission_error(subject: &str, last_server_error: &str) -> Option<PublishError> {
    let is_about = last_server_error.to_lowercase().contains("permissions violation for publish")
        && last_server_error.contains(&format!("\"{subject}\""));
    is_about.then(|| {
        PublishError::address_unavailable(format!(
            "no permission to publish to {subject}: allow it for this user ({last_server_error})"
        ))
        .named("AccessRefused")
    })
}

fn no_stream_error(subject: &str) -> PublishError {
    let command = create_stream_command(subject);
    PublishError::address_unavailable(format!(
        "no stream has the subject {subject}, or JetStream is disabled: {command}"
    ))
    .named("NoStream")
}

/// The command that creates a stream for a subject.
pub(super) fn create_stream_command(subject: &str) -> String {
    let first = subject.split('.').next().unwrap_or_default().to_uppercase();
    format!("nats stream add {first} --subjects '{subject}' --storage file --discard new --defaults")
}
