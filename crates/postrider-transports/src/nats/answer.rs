//! What the answers of JetStream mean for a message.

use async_nats::jetstream::{
    self, ErrorCode,
    context::{PublishError as ClientError, PublishErrorKind},
    publish::PublishAck,
};
use postrider_core::{PublishError, Receipt};
use std::error::Error as _;

/// A header block above 64 kB. The client has no name for it.
const HEADERS_TOO_LARGE: ErrorCode = ErrorCode(10097);

/// A stream has it.
pub(super) fn accepted(ack: &PublishAck, stream: Option<&str>) -> Result<Receipt, PublishError> {
    // Whoever listens on a subject may answer, not streams only.
    if ack.stream.is_empty() || stream.is_some_and(|stream| stream != ack.stream) {
        let text = format!("{:?} answered, which is not the stream that was expected", ack.stream);
        return Err(PublishError::unknown(text));
    }
    Ok(if ack.duplicate { Receipt::duplicate() } else { Receipt::new() })
}

/// No stream has it, or nobody knows.
pub(super) fn of(error: &ClientError, subject: &str) -> PublishError {
    match error.kind() {
        PublishErrorKind::StreamNotFound => PublishError::retry(no_stream(subject)),
        PublishErrorKind::MaxPayloadExceeded => PublishError::reject(error.to_string()),
        PublishErrorKind::MaxAckPending => PublishError::retry(error.to_string()),
        PublishErrorKind::TimedOut => PublishError::unknown("no acknowledgement came in time"),
        PublishErrorKind::BrokenPipe => {
            PublishError::unknown("the connection was lost before the acknowledgement came")
        }
        PublishErrorKind::WrongLastMessageId | PublishErrorKind::WrongLastSequence => {
            PublishError::retry(error.to_string())
        }
        PublishErrorKind::Other => match error.source().and_then(<dyn std::error::Error>::downcast_ref) {
            Some(said) => refused(said, subject),
            None => PublishError::unknown(format!("the answer cannot be read: {error}")),
        },
    }
}

/// JetStream read it and said no.
fn refused(said: &jetstream::Error, subject: &str) -> PublishError {
    match said.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | HEADERS_TOO_LARGE => {
            PublishError::reject(said.to_string())
        }
        ErrorCode::STREAM_NOT_FOUND => PublishError::retry(no_stream(subject)),
        ErrorCode::STREAM_NOT_MATCH => PublishError::retry(format!(
            "{said}: another stream holds {subject}; give `with_stream` its name, or move the subject"
        )),
        _ => PublishError::retry(said.to_string()),
    }
}

/// How to make one.
pub(super) fn no_stream(subject: &str) -> String {
    format!("no stream holds {subject}, or JetStream is off: {}", create(subject))
}

/// The command that makes a stream for a subject.
pub(super) fn create(subject: &str) -> String {
    let first = subject.split('.').next().unwrap_or_default().to_uppercase();
    format!(
        "nats stream add {first} --subjects '{subject}' --storage file --discard new --replicas 3 --defaults"
    )
}
