//! Classifies the errors of SQS and SNS.
//!
//! | error | class |
//! |---|---|
//! | no connection, no TLS, no credentials, an access key that is not accepted | unavailable |
//! | throttled, service unavailable | retry, after a wait |
//! | no such queue or topic, no permission, a KMS key that cannot be used | address unavailable: somebody has to fix it |
//! | contents or attributes that are not allowed, too long | rejected permanently |
//! | a timeout, a reset, a response that cannot be read, a status of 5xx | unknown |
//!
//! Codes are compared without the namespace before the last `.` or `#`: `AWS.SimpleQueueService.NonExistentQueue`.

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::{
    client::{orchestrator::HttpResponse, result::SdkError},
    http::Headers,
};
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use hyper_util::client::legacy;
use postrider_core::{PublishError, SourceError};
use std::{error::Error, time::Duration};

/// The wait after throttling, unless the service sends `Retry-After`.
const DEFAULT_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);
const MAX_CHARS: usize = 300;

/// The class of an error: what has to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    Retry(Option<Duration>),
    /// The queue or topic does not exist.
    Missing,
    /// The user has no permission for the queue or topic, or for its key.
    Forbidden,
    Unknown,
    Reject,
    Unavailable,
}

/// The error of a request, or of one of its entries.
#[derive(Debug, Clone)]
pub(crate) struct ServiceError {
    pub(crate) kind: FailureKind,
    pub(crate) reason: String,
}

impl ServiceError {
    pub(crate) fn new(kind: FailureKind, reason: String) -> Self {
        Self { kind, reason }
    }

    pub(crate) fn unavailable(reason: String) -> Self {
        Self::new(FailureKind::Unavailable, reason)
    }

    /// Classifies the error of a request that publishes.
    pub(crate) fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        match error {
            SdkError::ServiceError(response) => {
                let (error, raw) = (response.err(), response.raw());
                let (status, code) = (raw.status().as_u16(), error.code().unwrap_or_default());
                let kind = match classify_request(strip_namespace(code), status) {
                    FailureKind::Retry(Some(wait)) => {
                        FailureKind::Retry(Some(retry_after(raw.headers()).unwrap_or(wait)))
                    }
                    kind => kind,
                };
                Self::new(kind, describe(code, error.message(), status))
            }
            SdkError::DispatchFailure(_) | SdkError::ConstructionFailure(_) if was_not_sent(error) => {
                Self::unavailable(describe_chain(error))
            }
            _ => Self::new(FailureKind::Unknown, describe_chain(error)),
        }
    }
}

impl From<ServiceError> for PublishError {
    fn from(error: ServiceError) -> Self {
        match error.kind {
            FailureKind::Retry(Some(after)) => Self::retry_after(after, error.reason).named("Throttled"),
            FailureKind::Missing => Self::address_unavailable(error.reason).named("Missing"),
            FailureKind::Forbidden => Self::address_unavailable(format!(
                "{}; grant the permission in the policy of the user, the queue or topic, or the key",
                error.reason
            ))
            .named("AccessRefused"),
            FailureKind::Retry(None) => Self::retry(error.reason),
            FailureKind::Unknown => Self::unknown(error.reason),
            FailureKind::Reject => Self::reject(error.reason),
            FailureKind::Unavailable => Self::unavailable(error.reason),
        }
    }
}

impl From<ServiceError> for SourceError {
    /// The error of a request that receives or acks.
    fn from(error: ServiceError) -> Self {
        Self::unavailable(error.reason)
    }
}

/// Classifies the code of a failed entry. The service does not have the message, and the entry has no status.
pub(super) fn classify_entry(code: &str, is_senders_fault: bool) -> FailureKind {
    match classify_request(strip_namespace(code), 0) {
        FailureKind::Reject if !is_senders_fault => FailureKind::Retry(None),
        FailureKind::Unknown | FailureKind::Unavailable | FailureKind::Missing | FailureKind::Forbidden => {
            FailureKind::Retry(None)
        }
        kind => kind,
    }
}

fn classify_request(code: &str, status: u16) -> FailureKind {
    match code {
        "QueueDoesNotExist"
        | "NonExistentQueue"
        | "NotFound"
        | "NotFoundException"
        | "ResourceNotFoundException" => FailureKind::Missing,
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
        | "OptInRequired" => FailureKind::Unavailable,
        "AccessDenied"
        | "AccessDeniedException"
        | "AuthorizationError"
        | "AuthorizationErrorException"
        | "KmsAccessDenied"
        | "KMSAccessDeniedException"
        | "KmsDisabled"
        | "KMSDisabledException"
        | "KmsInvalidState"
        | "KMSInvalidStateException"
        | "KmsNotFound"
        | "KMSNotFoundException"
        | "KmsOptInRequired"
        | "KMSOptInRequired" => FailureKind::Forbidden,
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
        | "ValidationException" => FailureKind::Reject,
        "OverLimit" | "RequestLimitExceeded" | "SlowDown" | "ServiceUnavailable" => {
            FailureKind::Retry(Some(DEFAULT_WAIT))
        }
        // RequestThrottled, ThrottlingException, KmsThrottled, …
        _ if code.contains("Throttl") || code.starts_with("TooManyRequests") => {
            FailureKind::Retry(Some(DEFAULT_WAIT))
        }
        _ => match status {
            429 | 503 => FailureKind::Retry(Some(DEFAULT_WAIT)),
            0 | 400..=499 => FailureKind::Retry(None),
            // The service failed in the middle of the request, or its response cannot be read.
            _ => FailureKind::Unknown,
        },
    }
}

fn strip_namespace(code: &str) -> &str {
    code.rsplit(['.', '#']).next().unwrap_or(code)
}

pub(super) fn describe(code: &str, message: Option<&str>, status: u16) -> String {
    let code = if code.is_empty() { format!("status {status}") } else { code.to_owned() };
    let message: String = message.unwrap_or("no details").chars().take(MAX_CHARS).collect();
    format!("{code}: {message}")
}

/// `Retry-After` in whole seconds, up to a limit.
fn retry_after(headers: &Headers) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_WAIT))
}

/// Whether the request never left: there was no connection, or no credentials to sign it with.
fn was_not_sent<E: Error + 'static>(error: &SdkError<E, HttpResponse>) -> bool {
    matches!(error, SdkError::ConstructionFailure(_))
        || error_chain(error).any(|each| {
            each.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect)
                || each.is::<CredentialsError>()
        })
}

fn error_chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |each| {
        let each: &'e (dyn Error + 'static) = *each;
        each.source()
    })
}

/// The error and its sources in one line, after the cause and the remedy if TLS failed.
fn describe_chain(error: &(dyn Error + 'static)) -> String {
    let mut parts: Vec<String> = postrider_tls::describe(error).into_iter().collect();
    for part in error_chain(error).map(ToString::to_string) {
        if parts.last().is_none_or(|last| !last.contains(&part)) {
            parts.push(part);
        }
    }
    parts.join(": ").chars().take(MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classify_request_maps_code_and_status() {
        let wait = FailureKind::Retry(Some(DEFAULT_WAIT));
        for (code, status, kind) in [
            ("AWS.SimpleQueueService.NonExistentQueue", 400, FailureKind::Missing),
            ("com.amazonaws.sqs#QueueDoesNotExist", 400, FailureKind::Missing),
            ("NotFound", 404, FailureKind::Missing),
            ("InvalidClientTokenId", 403, FailureKind::Unavailable),
            ("SignatureDoesNotMatch", 403, FailureKind::Unavailable),
            ("ExpiredToken", 403, FailureKind::Unavailable),
            ("AccessDenied", 403, FailureKind::Forbidden),
            ("AuthorizationError", 403, FailureKind::Forbidden),
            ("KmsDisabled", 400, FailureKind::Forbidden),
            ("KmsThrottled", 400, wait),
            ("RequestThrottled", 403, wait),
            ("ThrottlingException", 400, wait),
            ("ServiceUnavailable", 503, wait),
            ("", 429, wait),
            ("", 503, wait),
            ("InternalError", 500, FailureKind::Unknown),
            ("", 502, FailureKind::Unknown),
            ("", 504, FailureKind::Unknown),
            ("", 200, FailureKind::Unknown),
            ("", 302, FailureKind::Unknown),
            ("InvalidMessageContents", 400, FailureKind::Reject),
            ("AWS.SimpleQueueService.BatchRequestTooLong", 400, FailureKind::Reject),
            ("InvalidParameterValue", 400, FailureKind::Reject),
            ("SomethingNew", 400, FailureKind::Retry(None)),
        ] {
            assert_eq!(classify_request(strip_namespace(code), status), kind, "{code} {status}");
        }
    }

    #[test]
    fn classify_entry_rejects_only_faults_of_the_sender() {
        assert_eq!(classify_entry("InvalidParameterValue", true), FailureKind::Reject);
        assert_eq!(classify_entry("InvalidParameterValue", false), FailureKind::Retry(None));
        assert_eq!(classify_entry("AccessDenied", true), FailureKind::Retry(None));
        assert_eq!(classify_entry("InternalError", false), FailureKind::Retry(None));
        assert_eq!(classify_entry("RequestThrottled", false), FailureKind::Retry(Some(DEFAULT_WAIT)));
        assert_eq!(classify_entry("", true), FailureKind::Retry(None));
    }
}
