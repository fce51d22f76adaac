//! What the answers of JetStream mean for a message.

use async_nats::{
    Message, StatusCode,
    client::{PublishError as ClientError, PublishErrorKind},
    jetstream::{self, ErrorCode},
};
use postrider_core::{PublishError, Receipt};
use serde::Deserialize;
use std::borrow::Cow;

pub(super) type Answer = Result<Receipt, PublishError>;

/// A header block above 64 kB. The client has no name for it.
const HEADERS_TOO_LARGE: ErrorCode = ErrorCode(10097);

/// What a stream says of a message.
#[derive(Deserialize)]
struct Said<'s> {
    error: Option<jetstream::Error>,
    #[serde(borrow, default)]
    stream: Cow<'s, str>,
    #[serde(rename = "seq")]
    place: Option<u64>,
    #[serde(default)]
    duplicate: bool,
}

/// What was said of a message to `subject`.
pub(super) fn of(message: &Message, subject: &str, expected: Option<&str>) -> Answer {
    if message.status == Some(StatusCode::NO_RESPONDERS) {
        return Err(missing(subject));
    }
    let unreadable =
        |why: &dyn std::fmt::Display| PublishError::unknown(format!("the answer cannot be read: {why}"));
    let said: Said<'_> = serde_json::from_slice(&message.payload).map_err(|error| unreadable(&error))?;
    if let Some(error) = said.error {
        return Err(refused(&error, subject));
    }
    if said.place.is_none() {
        return Err(unreadable(&"it names no place in a stream"));
    }
    // Whoever listens on a subject may answer, not streams only.
    if said.stream.is_empty() || expected.is_some_and(|stream| stream != said.stream) {
        let text = format!("{:?} answered, which is not the stream that was expected", said.stream);
        return Err(PublishError::unknown(text));
    }
    Ok(if said.duplicate { Receipt::duplicate() } else { Receipt::new() })
}

/// It was not handed to the connection.
pub(super) fn unsent(error: &ClientError) -> PublishError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => PublishError::reject(error.to_string()).named("TooLarge"),
        PublishErrorKind::InvalidSubject => PublishError::reject(error.to_string()).named("InvalidSubject"),
        PublishErrorKind::Send => PublishError::down(error.to_string()),
    }
}

/// JetStream read it and said no.
fn refused(said: &jetstream::Error, subject: &str) -> PublishError {
    match said.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | HEADERS_TOO_LARGE => {
            PublishError::reject(said.to_string()).named("TooLarge")
        }
        ErrorCode::STREAM_NOT_FOUND => missing(subject),
        ErrorCode::STREAM_NOT_MATCH => PublishError::retry(format!(
            "{said}: another stream holds {subject}; give `with_stream` its name, or move the subject"
        ))
        .named("OtherStream"),
        _ => PublishError::retry(said.to_string()),
    }
}

fn missing(subject: &str) -> PublishError {
    PublishError::retry(no_stream(subject)).named("NoStream")
}

/// How to make one.
pub(super) fn no_stream(subject: &str) -> String {
    format!("no stream holds {subject}, or JetStream is off: {}", create(subject))
}

/// The command that makes a stream for a subject.
pub(super) fn create(subject: &str) -> String {
    let first = subject.split('.').next().unwrap_or_default().to_uppercase();
    format!("nats stream add {first} --subjects '{subject}' --storage file --discard new --defaults")
}
