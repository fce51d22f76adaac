//! What a status means.
//!
//! | status | answer | why |
//! |---|---|---|
//! | 2xx | accepted | and nothing else is, unless it was configured |
//! | 410 | refused for good, and the URL is sent nothing any more | the receiver asks for just that |
//! | 413, 414, 415, 431 | refused for good | the same bytes will never fit |
//! | those that were configured | refused for good | the receiver's own contract |
//! | 3xx | refused for now | redirects are not followed; the URL has to be corrected, no message is at fault |
//! | 408, 425, 429, 5xx | refused for now | the receiver says so |
//! | all other 4xx | refused for now | a wrong secret, a route that is not deployed yet, a bug: receivers mend them, and expect to get what they missed |

use postrider_core::{PublishError, Receipt};
use reqwest::{
    StatusCode,
    header::{HeaderMap, RETRY_AFTER},
};
use std::{
    collections::BTreeSet,
    time::{Duration, SystemTime},
};

/// How statuses are read.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// Accepted, besides those of the table.
    pub(super) accepted: BTreeSet<u16>,
    /// For good, besides those of the table.
    pub(super) rejected: BTreeSet<u16>,
    /// What a receiver may ask for at most.
    pub(super) longest_wait: Duration,
}

impl Reading {
    /// The answer to one message. `said` is the beginning of the answer's body.
    pub(super) fn answer(
        &self,
        origin: &str,
        status: StatusCode,
        headers: &HeaderMap,
        said: &str,
        now: SystemTime,
    ) -> Result<Receipt, PublishError> {
        let mut told = format!("{origin} answered {status}");
        if !said.is_empty() {
            told = format!("{told}: {}", said.escape_debug());
        }
        match status.as_u16() {
            200..=299 => return Ok(Receipt::new()),
            code if self.accepted.contains(&code) => return Ok(Receipt::new()),
            410 => told.push_str("; nothing is sent to that URL any more"),
            300..=399 => told.push_str("; redirects are not followed: send to the URL that it leads to"),
            _ => {}
        }
        let error = match (status.as_u16(), retry_after(headers, now)) {
            (410 | 413 | 414 | 415 | 431, _) => PublishError::reject(told),
            (code, _) if self.rejected.contains(&code) => PublishError::reject(told),
            (_, Some(wait)) => PublishError::retry_after(wait.min(self.longest_wait), told),
            (_, None) => PublishError::retry(told),
        };
        Err(error.named(name(status.as_u16())))
    }
}

/// Names of statuses that receivers have reasons for.
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

/// A name for what a receiver does not accept.
fn name(status: u16) -> &'static str {
    let rare = match status {
        300..=399 => "Redirected",
        400..=499 => "Http4xx",
        500..=599 => "Http5xx",
        _ => "HttpUnexpected",
    };
    NAMES.iter().find(|(known, _)| *known == status).map_or(rare, |(_, name)| name)
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let at = |date: SystemTime| date.duration_since(now).unwrap_or_default();
    // Digits that are too many for a number are a very long time, and capped like one.
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
        let reading = Reading { accepted: [404].into(), rejected: [422].into(), longest_wait: HOUR };
        let mut headers = HeaderMap::new();
        if let Some(wait) = wait {
            headers.insert(RETRY_AFTER, wait.parse().unwrap());
        }
        let now = UNIX_EPOCH + Duration::from_secs(784_111_777);
        reading.answer("https://shop.example", StatusCode::from_u16(status).unwrap(), &headers, "", now)
    }

    #[test]
    fn a_refusal_is_called_by_its_status() {
        let called = |status| read(status, None).unwrap_err().name();
        assert_eq!([403, 422, 503].map(called), ["Http403", "Http422", "Http503"]);
        assert_eq!([302, 418, 599, 101].map(called), ["Redirected", "Http4xx", "Http5xx", "HttpUnexpected"]);
    }

    #[test]
    fn every_status_has_its_meaning() {
        for status in 100..600 {
            let answer = read(status, None);
            let is_right = match status {
                200..=299 | 404 => answer.is_ok(),
                410 | 413 | 414 | 415 | 422 | 431 => matches!(answer, Err(PublishError::Reject { .. })),
                _ => matches!(answer, Err(PublishError::Retry { after: None, .. })),
            };
            assert!(is_right, "{status}: {answer:?}");
        }
    }

    #[test]
    fn a_receiver_may_say_when_within_a_limit() {
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
