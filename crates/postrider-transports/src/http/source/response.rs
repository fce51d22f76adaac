//! The HTTP responses of a webhook source.

use super::{MAX_RETRY_AFTER, pending_requests::NotAccepted};
use crate::http::signature::SignatureError;
use axum::{
    http::{
        HeaderValue, StatusCode,
        header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use postrider_core::Ack;
use serde_json::json;
use std::time::Duration;

/// `Retry-After` of requests that were not accepted.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// All responses that a sender can get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WebhookResponse {
    Acked,
    Nacked(Duration),
    Rejected,
    SignatureMissing,
    BadSignature(SignatureError),
    TooSlow,
    Incomplete,
    TooLarge,
    Batch,
    ContentEncoded,
    NotAccepted(NotAccepted),
}

impl From<Option<Ack>> for WebhookResponse {
    fn from(ack: Option<Ack>) -> Self {
        match ack {
            Some(Ack::Ack) => Self::Acked,
            Some(Ack::Nack { after }) => Self::Nacked(after),
            Some(Ack::Reject) => Self::Rejected,
            None => Self::NotAccepted(NotAccepted::Closed),
        }
    }
}

impl WebhookResponse {
    /// The status, a stable code, and the reason with its remedy.
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Acked => (StatusCode::NO_CONTENT, "done", ""),
            Self::Nacked(_) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "nacked",
                "the message was not handled; retry after the time in Retry-After",
            ),
            Self::Rejected => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "rejected",
                "the consumer rejected the message permanently; do not retry",
            ),
            Self::SignatureMissing => (
                StatusCode::UNAUTHORIZED,
                "signature_missing",
                "a signature header is missing; send webhook-id, webhook-timestamp and webhook-signature",
            ),
            Self::BadSignature(SignatureError::Unreadable) => (
                StatusCode::UNAUTHORIZED,
                "timestamp_unreadable",
                "webhook-timestamp is not a number; send the seconds since 1970",
            ),
            Self::BadSignature(SignatureError::TooOld) => (
                StatusCode::UNAUTHORIZED,
                "timestamp_too_old",
                "webhook-timestamp is too old; sign each attempt anew and synchronize the sender's clock",
            ),
            Self::BadSignature(SignatureError::TooNew) => (
                StatusCode::UNAUTHORIZED,
                "timestamp_too_new",
                "webhook-timestamp is in the future; synchronize the sender's clock",
            ),
            Self::BadSignature(SignatureError::Forged) => (
                StatusCode::UNAUTHORIZED,
                "signature_wrong",
                "no signature in webhook-signature matches a secret of this endpoint; check the shared secret",
            ),
            Self::TooSlow => {
                (StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not arrive in time; retry")
            }
            Self::Incomplete => (
                StatusCode::BAD_REQUEST,
                "broken_off",
                "the connection ended before the body was complete; retry",
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                "the body exceeds the size limit of this endpoint; send a smaller message",
            ),
            Self::Batch => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "batch",
                "batches of events are not supported; send each event in a request of its own",
            ),
            Self::ContentEncoded => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "encoded",
                "compressed bodies are not supported; send the body without Content-Encoding",
            ),
            Self::NotAccepted(NotAccepted::Duplicate) => (
                StatusCode::CONFLICT,
                "in_flight",
                "a request with this webhook-id is in flight; retry after the time in Retry-After",
            ),
            Self::NotAccepted(NotAccepted::Full) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "full",
                "too many requests are in flight; retry after the time in Retry-After",
            ),
            Self::NotAccepted(NotAccepted::Closed) => (
                StatusCode::SERVICE_UNAVAILABLE,
                "closed",
                "the endpoint is shutting down; retry after the time in Retry-After",
            ),
        }
    }

    fn retry_after(self) -> Option<Duration> {
        match self {
            Self::Nacked(after) => Some(after.min(MAX_RETRY_AFTER)),
            Self::NotAccepted(_) => Some(DEFAULT_RETRY_AFTER),
            _ => None,
        }
    }
}

impl IntoResponse for WebhookResponse {
    fn into_response(self) -> Response {
        let (status, code, reason) = self.parts();
        if status == StatusCode::NO_CONTENT {
            return status.into_response();
        }
        let body = json!({ "code": code, "reason": reason }).to_string();
        let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.retry_after() {
            // Whole seconds, rounded up.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if matches!(self, Self::TooLarge | Self::TooSlow) {
            // The rest of the body is never read.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
