//! What a request is answered.

use super::{LONGEST_DELAY, desk::TurnedAway};
use crate::http::signature::Refused;
use axum::{
    http::{
        HeaderValue, StatusCode,
        header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER},
    },
    response::{IntoResponse, Response},
};
use postrider_core::Answer;
use serde_json::json;
use std::time::Duration;

/// When to come again where nobody said.
const SOON: Duration = Duration::from_secs(1);

/// Everything that a sender may be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    Done,
    Again(Duration),
    Refuse,
    Unsigned,
    Disbelieved(Refused),
    Slow,
    BrokenOff,
    TooLarge,
    Batch,
    Encoded,
    TurnedAway(TurnedAway),
}

impl From<Option<Answer>> for Reply {
    fn from(answer: Option<Answer>) -> Self {
        match answer {
            Some(Answer::Done) => Self::Done,
            Some(Answer::Again { after }) => Self::Again(after),
            Some(Answer::Refuse) => Self::Refuse,
            None => Self::TurnedAway(TurnedAway::Closed),
        }
    }
}

impl Reply {
    /// The status, a word that never changes, and what it means.
    fn parts(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::Done => (StatusCode::NO_CONTENT, "done", ""),
            Self::Again(_) => (StatusCode::SERVICE_UNAVAILABLE, "again", "not handled yet: send it again"),
            Self::Refuse => (StatusCode::UNPROCESSABLE_ENTITY, "refused", "it will never be handled"),
            Self::Unsigned => (
                StatusCode::UNAUTHORIZED,
                "signature_missing",
                "send webhook-id, webhook-timestamp and webhook-signature",
            ),
            Self::Disbelieved(Refused::Unreadable) => (
                StatusCode::UNAUTHORIZED,
                "timestamp_unreadable",
                "webhook-timestamp is no number of seconds",
            ),
            Self::Disbelieved(Refused::TooOld) => (
                StatusCode::UNAUTHORIZED,
                "timestamp_too_old",
                "sign each attempt anew, by a clock that is right",
            ),
            Self::Disbelieved(Refused::TooNew) => {
                (StatusCode::UNAUTHORIZED, "timestamp_too_new", "sign by a clock that is right")
            }
            Self::Disbelieved(Refused::Forged) => (
                StatusCode::UNAUTHORIZED,
                "signature_wrong",
                "no signature is by a secret that is known here",
            ),
            Self::Slow => (StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not come in time"),
            Self::BrokenOff => (StatusCode::BAD_REQUEST, "broken_off", "the body did not come to its end"),
            Self::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "the body is longer than is taken here")
            }
            Self::Batch => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "batch", "send each event in a request of its own")
            }
            Self::Encoded => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "encoded", "send the body without a content encoding")
            }
            Self::TurnedAway(TurnedAway::Twin) => {
                (StatusCode::CONFLICT, "in_hand", "a request with this webhook-id is being handled")
            }
            Self::TurnedAway(TurnedAway::Full) => {
                (StatusCode::SERVICE_UNAVAILABLE, "full", "too many are being handled: send it again")
            }
            Self::TurnedAway(TurnedAway::Closed) => {
                (StatusCode::SERVICE_UNAVAILABLE, "closed", "nobody receives here now: send it again")
            }
        }
    }

    fn wait(self) -> Option<Duration> {
        match self {
            Self::Again(after) => Some(after.min(LONGEST_DELAY)),
            Self::TurnedAway(_) => Some(SOON),
            _ => None,
        }
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let (status, code, reason) = self.parts();
        if status == StatusCode::NO_CONTENT {
            return status.into_response();
        }
        let body = json!({ "code": code, "reason": reason }).to_string();
        let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
        let headers = response.headers_mut();
        if let Some(wait) = self.wait() {
            // Whole seconds, and never too early.
            let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if matches!(self, Self::TooLarge | Self::Slow) {
            // The rest of the body is never read.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
