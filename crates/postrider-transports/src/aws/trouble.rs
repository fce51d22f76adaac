//! What went wrong, and what is to be done next.
//!
//! | what happened | what it means |
//! |---|---|
//! | no connection, no TLS, no credentials, a key that is not accepted | nothing gets through |
//! | throttled, unavailable | refused for now, with a wait |
//! | no such queue or topic, not permitted, a key of KMS that is not usable | refused for now: somebody has to mend it |
//! | contents or attributes that are not allowed, too long | refused for good |
//! | a timeout, a reset, an answer that cannot be read, a status of 5xx | nobody knows |
//!
//! Codes are compared without what stands before the last `.` or `#`: `AWS.SimpleQueueService.NonExistentQueue`.

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::{
    client::{orchestrator::HttpResponse, result::SdkError},
    http::Headers,
};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use hyper_util::client::legacy;
use postrider_core::{PublishError, SourceError};
use std::{error::Error, time::Duration};

/// Unless the service says when.
const WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
const TOLD_CHARS: usize = 300;

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Retry(Option<Duration>),
    /// There is no such queue or topic.
    Missing,
    Unknown,
    Reject,
    Down,
}

/// One reason for all messages of a request.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    pub(crate) kind: Kind,
    pub(crate) said: String,
}

impl Trouble {
    pub(crate) fn new(kind: Kind, said: String) -> Self {
        Self { kind, said }
    }

    pub(crate) fn down(said: String) -> Self {
        Self::new(Kind::Down, said)
    }

    /// Of a request that was to send something.
    pub(crate) fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        match error {
            SdkError::ServiceError(refused) => {
                let (error, raw) = (refused.err(), refused.raw());
                let (status, code) = (raw.status().as_u16(), error.code().unwrap_or_default());
                let kind = match of_request(bare(code), status) {
                    Kind::Retry(Some(wait)) => Kind::Retry(Some(asked(raw.headers()).unwrap_or(wait))),
                    kind => kind,
                };
                Self::new(kind, told(code, error.message(), status))
            }
            SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_) if was_not_sent(error) => {
                Self::down(chain(error))
            }
            _ => Self::new(Kind::Unknown, chain(error)),
        }
    }
}

impl From<Trouble> for PublishError {
    fn from(trouble: Trouble) -> Self {
        match trouble.kind {
            Kind::Retry(Some(after)) => Self::retry_after(after, trouble.said).named("Throttled"),
            Kind::Missing => Self::retry(trouble.said).named("Missing"),
            Kind::Retry(None) => Self::retry(trouble.said),
            Kind::Unknown => Self::unknown(trouble.said),
            Kind::Reject => Self::reject(trouble.said),
            Kind::Down => Self::down(trouble.said),
        }
    }
}

impl From<Trouble> for SourceError {
    /// Of a request that was to receive or to answer something.
    fn from(trouble: Trouble) -> Self {
        Self::down(trouble.said)
    }
}

/// What a message's own code means. The service lists it as failed: it is not there. It has no status.
pub(super) fn of_entry(code: &str, is_senders_fault: bool) -> Kind {
    match of_request(bare(code), 0) {
        Kind::Reject if !is_senders_fault => Kind::Retry(None),
        Kind::Unknown | Kind::Down | Kind::Missing => Kind::Retry(None),
        kind => kind,
    }
}

fn of_request(code: &str, status: u16) -> Kind {
    match code {
        "QueueDoesNotExist"
        | "NonExistentQueue"
        | "NotFound"
        | "NotFoundException"
        | "ResourceNotFoundException" => Kind::Missing,
        "InvalidClientTokenId"
        | "InvalidAccessKeyId"
        | "UnrecognizedClientException"
        | "SignatureDoesNotMatch"
        | "InvalidSignatureException"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "IncompleteSignature"
        | "RequestExpired"
        | "OptInRequired" => Kind::Down,
        "InvalidMessageContents"
        | "InvalidParameterValue"
        | "InvalidParameterValueException"
        | "ParameterValueInvalid"
        | "InvalidParameter"
        | "InvalidParameterException"
        | "MissingParameter"
        | "InvalidAttributeValue"
        | "InvalidAttributeName"
        | "BatchRequestTooLong"
        | "BatchRequestTooLongException"
        | "MessageTooLong"
        | "ValidationError"
        | "ValidationException" => Kind::Reject,
        "OverLimit" | "RequestLimitExceeded" | "SlowDown" | "ServiceUnavailable" => Kind::Retry(Some(WAIT)),
        // RequestThrottled, ThrottlingException, KmsThrottled, …
        _ if code.contains("Throttl") || code.starts_with("TooManyRequests") => Kind::Retry(Some(WAIT)),
        _ => match status {
            429 | 503 => Kind::Retry(Some(WAIT)),
            0 | 400..=499 => Kind::Retry(None),
            // It broke down in the middle of something, or says something that cannot be read.
            _ => Kind::Unknown,
        },
    }
}

fn bare(code: &str) -> &str {
    code.rsplit(['.', '#']).next().unwrap_or(code)
}

pub(super) fn told(code: &str, message: Option<&str>, status: u16) -> String {
    let code = if code.is_empty() { format!("status {status}") } else { code.to_owned() };
    let message: String = message.unwrap_or("no details").chars().take(TOLD_CHARS).collect();
    format!("{code}: {message}")
}

/// Whole seconds, up to a limit.
fn asked(headers: &Headers) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(LONGEST_WAIT))
}

/// There never was a connection to send it on, or nobody to sign it.
fn was_not_sent<E: Error + 'static>(error: &SdkError<E, HttpResponse>) -> bool {
    matches!(error, SdkError::ConstructionFailure(_))
        || sources(error).any(|each| {
            each.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect)
                || each.is::<CredentialsError>()
        })
}

fn sources<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |each| {
        let each: &'e (dyn Error + 'static) = *each;
        each.source()
    })
}

/// The error and what is behind it.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in sources(error).map(ToString::to_string) {
        if parts.last().is_none_or(|last| !last.contains(&part)) {
            parts.push(part);
        }
    }
    parts.join(": ").chars().take(TOLD_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_meaning() {
        let wait = Kind::Retry(Some(WAIT));
        for (code, status, kind) in [
            ("AWS.SimpleQueueService.NonExistentQueue", 400, Kind::Missing),
            ("com.amazonaws.sqs#QueueDoesNotExist", 400, Kind::Missing),
            ("NotFound", 404, Kind::Missing),
            ("InvalidClientTokenId", 403, Kind::Down),
            ("SignatureDoesNotMatch", 403, Kind::Down),
            ("ExpiredToken", 403, Kind::Down),
            ("AccessDenied", 403, Kind::Retry(None)),
            ("KmsDisabled", 400, Kind::Retry(None)),
            ("KmsThrottled", 400, wait),
            ("RequestThrottled", 403, wait),
            ("ThrottlingException", 400, wait),
            ("ServiceUnavailable", 503, wait),
            ("", 429, wait),
            ("", 503, wait),
            ("InternalError", 500, Kind::Unknown),
            ("", 502, Kind::Unknown),
            ("", 504, Kind::Unknown),
            ("", 200, Kind::Unknown),
            ("", 302, Kind::Unknown),
            ("InvalidMessageContents", 400, Kind::Reject),
            ("AWS.SimpleQueueService.BatchRequestTooLong", 400, Kind::Reject),
            ("InvalidParameterValue", 400, Kind::Reject),
            ("SomethingNew", 400, Kind::Retry(None)),
        ] {
            assert_eq!(of_request(bare(code), status), kind, "{code} {status}");
        }
    }

    #[test]
    fn what_is_listed_as_failed_is_refused_by_whose_fault_it_is() {
        assert_eq!(of_entry("InvalidParameterValue", true), Kind::Reject);
        assert_eq!(of_entry("InvalidParameterValue", false), Kind::Retry(None));
        assert_eq!(of_entry("AccessDenied", true), Kind::Retry(None));
        assert_eq!(of_entry("InternalError", false), Kind::Retry(None));
        assert_eq!(of_entry("RequestThrottled", false), Kind::Retry(Some(WAIT)));
        assert_eq!(of_entry("", true), Kind::Retry(None));
    }
}
