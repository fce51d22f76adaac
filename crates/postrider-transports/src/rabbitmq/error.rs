//! Classifies returns, nacks and channel errors of the broker as publish errors.

use super::{address::Address, wire::Publication};
use lapin::{
    Error, ErrorKind,
    message::BasicReturnMessage,
    protocol::{AMQPErrorKind, AMQPSoftError},
};
use postrider_core::PublishError;

/// The broker returned the message: no queue is bound for it. By the default exchange the queue itself is missing.
pub(super) fn unroutable(address: &Address, message: &BasicReturnMessage) -> PublishError {
    let (code, text) = (message.reply_code, &message.reply_text);
    let why = |fix: &str| format!("unroutable: {address} leads to no queue ({code} {text}): {fix}");
    match address.exchange.as_str() {
        "" => PublishError::address_unavailable(why("declare it")),
        _ => PublishError::retry(why("bind one to it")),
    }
    .named("Unroutable")
}

/// The broker nacked the message.
pub(super) fn nacked(address: &Address) -> PublishError {
    PublishError::retry(format!(
        "nacked by the broker at {address}: a queue is full and rejects new messages, or has failed"
    ))
    .named("Nacked")
}

/// The channel or the connection ended before the broker confirmed the message. Sets `is_ambiguous` when the broker closed the channel
/// for one message of several and does not say which.
pub(super) fn channel_closed(
    publication: &Publication<'_>,
    error: Error,
    is_alone: bool,
    is_ambiguous: &mut bool,
) -> PublishError {
    let Some(reason) = soft_error(&error) else { return PublishError::unknown(error) };
    match reason {
        // This concerns the whole batch: its messages have the exchange in common.
        AMQPSoftError::NOTFOUND => PublishError::address_unavailable(format!(
            "exchange {:?} does not exist: declare it ({error})",
            publication.address.exchange.as_str()
        ))
        .named("NoExchange"),
        // And so does this. A permission for topics, in contrast, depends on the routing key.
        AMQPSoftError::ACCESSREFUSED if error.to_string().contains("access to exchange") => {
            PublishError::address_unavailable(format!(
                "no permission to publish to exchange {:?}: grant `write` on it ({error})",
                publication.address.exchange.as_str()
            ))
            .named("AccessRefused")
        }
        AMQPSoftError::PRECONDITIONFAILED | AMQPSoftError::CONTENTTOOLARGE if is_alone => {
            PublishError::reject(error).named("TooLarge")
        }
        AMQPSoftError::ACCESSREFUSED if is_alone => PublishError::retry(error).named("AccessRefused"),
        _ if is_alone => PublishError::retry(error),
        _ => {
            *is_ambiguous = true;
            PublishError::unknown(error)
        }
    }
}

/// Why the broker closed the channel; `None` if the whole connection failed.
pub(super) fn soft_error(error: &Error) -> Option<&AMQPSoftError> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => match error.kind() {
            AMQPErrorKind::Soft(reason) => Some(reason),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}
