//! Classifies the status of a response.
//!
//! | status | publish result | reason |
//! |---|---|---|
//! | 2xx | accepted | and no other status, unless it was configured |
//! | 410 | rejected permanently, and no more messages are sent to the URL | the receiver asks for exactly that |
//! | 413, 414, 415, 431 | rejected permanently | the same bytes will never fit |
//! | configured statuses | rejected permanently | the receiver's own contract |
//! | 3xx | retry | redirects are not followed; the URL has to be corrected, no message is at fault |
//! | 408, 425, 429, 5xx | retry | the receiver says so |
//! | all other 4xx | retry | a wrong secret, a route that is not deployed yet, a bug: receivers fix them, and expect the messages that they missed |

use postrider_core::{PublishError, Receipt};
use reqwest::{
    StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

/// Maps statuses to publish results.
#[derive(Debug, Clone)]
pub(super) struct StatusClassifier {
    /// Statuses that are accepted, in addition to those of the table.
    pub(super) accepted: BTreeSet<u16>,
    /// Statuses that are rejected permanently, in addition to those of the table.
    pub(super) rejected: BTreeSet<u16>,
    /// The longest `Retry-After` that is obeyed.
    pub(super) max_retry_after: Duration,
}

impl StatusClassifier {
    /// The publish result of one message. `body` is the beginning of the response's body.
    pub(super) fn classify(
        &self,
        origin: &str,
        status: StatusCode,
        headers: &HeaderMap,
        body: &str,
        now: SystemTime,
    ) -> Result<Receipt, PublishError> {
        let mut reason = format!("{origin} responded with {status}");
        if !body.is_empty() {
            reason = format!("{reason}: {}", body.escape_debug());
        }
        match status.as_u16() {
            200..=299 => return Ok(Receipt::new()),
            code if self.accepted.contains(&code) => return Ok(Receipt::new()),
            410 => reason.push_str("; no more messages are sent to that URL"),
            300..=399 => reason.push_str("; redirects are not followed: configure the final URL"),
            _ => {}
        }
        let error = match (status.as_u16(), retry_after(headers, now)) {
            (410 | 413 | 414 | 415 | 431, _) => PublishError::reject(reason),
            (code, _) if self.rejected.contains(&code) => PublishError::reject(reason),
            (_, Some(wait)) => PublishError::retry_after(wait.min(self.max_retry_after), reason),
            (_, None) => PublishError::retry(reason),
        };
        Err(error.named(name(status.as_u16())))
    }
}

/// The error names of common statuses.
const NAMES: [(u16, &str); 18] = [
    (400, "Http400"),
    (401, "Http401"),
    (403, "Http403"),
    (404, "Http404"),
    (405, "Http405"),
    (408, "Http408"),
    (409, "Http409"),
    (410, "Http410"),
    (413, "Http413"),
    (415, "Http415"),
    (422, "Http422"),
    (425, "Http425"),
    (429, "Http429"),
    (500, "Http500"),
    (501, "Http501"),
    (502, "Http502"),
    (503, "Http503"),
    (504, "Http504"),
];

/// The error name of a status.
fn name(status: u16) -> &'static str {
    let rare = match status {
        300..=399 => "Redirected",
        400..=499 => "Http4xx",
        500..=599 => "Http5xx",
        _ => "HttpUnexpected",
    };
    NAMES.iter().find(|(known, _)| *known == status).map_or(rare, |(_, name)| name)
}

/// The value of `Retry-After`: seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let at = |date: SystemTime| date.duration_since(now).unwrap_or_default();
    // A number that overflows is a very long time, and capped like one.
    match text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
        true => Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX))),
        false => httpdate::parse_http_date(text).ok().map(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    const HOUR: Duration = Duration::from_secs(3600);

    fn read(status: u16, wait: Option<&str>) -> Result<Receipt, PublishError> {
        let classifier =
            StatusClassifier { accepted: [404].into(), rejected: [422].into(), max_retry_after: HOUR };
        let mut headers = HeaderMap::new();
        if let Some(wait) = wait {
            headers.insert(RETRY_AFTER, wait.parse().unwrap());
        }
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        classifier.classify("https://shop.example", StatusCode::from_u16(status).unwrap(), &headers, "", now)
    }

    #[test]
    fn error_name_is_derived_from_status() {
        let name = |status| read(status, None).unwrap_err().name();
        assert_eq!([403, 422, 503].map(name), ["Http403", "Http422", "Http503"]);
        assert_eq!([302, 418, 599, 101].map(name), ["Redirected", "Http4xx", "Http5xx", "HttpUnexpected"]);
    }

    #[test]
    fn classify_maps_every_status() {
        for status in 100..600 {
            let result = read(status, None);
            let is_right = match status {
                200..=299 | 404 => result.is_ok(),
                410 | 413 | 414 | 415 | 422 | 431 => matches!(result, Err(PublishError::Reject { .. })),
                _ => matches!(result, Err(PublishError::Retry { after: None, .. })),
            };
            assert!(is_right, "{status}: {result:?}");
        }
    }

    #[test]
    fn retry_after_is_obeyed_up_to_the_limit() {
        let wait = |status, text| match read(status, Some(text)) {
            Err(PublishError::Retry { after, .. }) => after.map(|after| after.as_secs()),
            other => panic!("{other:?}"),
        };
        for status in [408, 425, 429, 500, 503] {
            assert_eq!(wait(status, "120"), Some(120), "{status}");
        }
        assert_eq!(wait(503, "Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(wait(503, "Sun, 06 Nov 1994 08:00:00 GMT"), Some(0), "it has passed");
        assert_eq!(wait(503, "86400"), Some(3600), "capped");
        assert_eq!(wait(503, "99999999999999999999999"), Some(3600), "capped");
        assert_eq!(wait(503, "Sat, 06 Nov 2094 08:49:37 GMT"), Some(3600), "capped");
        for nonsense in ["soon", "-1", "1.5", ""] {
            assert_eq!(wait(503, nonsense), None, "{nonsense}");
        }
    }
}
