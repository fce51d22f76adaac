//! The response to a batch request: two lists of ids.
//!
//! An id counts for its own message only. A message whose id is in neither list, in both, or in one of them twice, has no result: the
//! service may have understood the request in part. Ids that were not sent mean nothing.

use super::error::{FailureKind, ServiceError, classify_entry, describe};

/// The ids that the service accepted, and the entries that it did not.
#[derive(Debug, Default)]
pub(crate) struct BatchResult {
    pub(crate) accepted: Vec<String>,
    pub(crate) failed: Vec<FailedEntry>,
}

/// An entry that was not accepted.
#[derive(Debug)]
pub(crate) struct FailedEntry {
    pub(crate) id: String,
    pub(crate) code: String,
    pub(crate) message: Option<String>,
    pub(crate) is_senders_fault: bool,
}

impl BatchResult {
    /// One result for each of the ids `0` to `count`, for a publisher.
    pub(super) fn results(&self, count: usize) -> Vec<Result<(), ServiceError>> {
        let classify = |failed: &FailedEntry| {
            ServiceError::new(classify_entry(&failed.code, failed.is_senders_fault), failed.describe())
        };
        self.results_by(count, classify, |reason| ServiceError::new(FailureKind::Unknown, reason.to_owned()))
    }

    /// One result for each of the ids `0` to `count`. The caller maps failed entries and unknown outcomes to its own errors.
    pub(crate) fn results_by<E>(
        &self,
        count: usize,
        classify: impl Fn(&FailedEntry) -> E,
        unknown: impl Fn(&str) -> E,
    ) -> Vec<Result<(), E>> {
        let mut by_entry: Vec<Vec<Result<(), E>>> = (0..count).map(|_| Vec::new()).collect();
        let mut add = |id: &str, result| {
            // Exactly as it was sent: "01" is no id.
            if let Some(entry) = (0..count).find(|number| number.to_string() == id) {
                by_entry[entry].push(result);
            }
        };
        for id in &self.accepted {
            add(id, Ok(()));
        }
        for failed in &self.failed {
            add(&failed.id, Err(classify(failed)));
        }
        let only = |mut results: Vec<_>| match (results.pop(), results.is_empty()) {
            (Some(result), true) => result,
            (Some(_), false) => Err(unknown("the response lists this message more than once")),
            (None, _) => Err(unknown("the response does not list this message")),
        };
        by_entry.into_iter().map(only).collect()
    }
}

impl FailedEntry {
    /// The code and message of the service.
    pub(crate) fn describe(&self) -> String {
        describe(&self.code, self.message.as_deref(), 200)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(accepted: &[&str], failed: &[(&str, &str, bool)]) -> Vec<&'static str> {
        let accepted = accepted.iter().map(ToString::to_string).collect();
        let entry = |(id, code, is_senders_fault): &(&str, &str, bool)| FailedEntry {
            id: (*id).to_owned(),
            code: (*code).to_owned(),
            message: None,
            is_senders_fault: *is_senders_fault,
        };
        let batch = BatchResult { accepted, failed: failed.iter().map(entry).collect() };
        let name = |result: Result<(), ServiceError>| match result {
            Ok(()) => "accepted",
            Err(error) => postrider_core::PublishError::from(error).kind(),
        };
        batch.results(3).into_iter().map(name).collect()
    }

    #[test]
    fn results_match_ids_to_their_own_entry_only() {
        assert_eq!(kinds(&["2", "0", "1"], &[]), ["accepted"; 3]);
        assert_eq!(
            kinds(&["0", "2"], &[("1", "InternalError", false)]),
            ["accepted", "PublishRefused", "accepted"]
        );
        assert_eq!(
            kinds(&["0"], &[("1", "InvalidMessageContents", true)]),
            ["accepted", "PublishRejected", "PublishUnknown"],
            "in neither list"
        );
        assert_eq!(kinds(&[], &[]), ["PublishUnknown"; 3]);
        assert_eq!(kinds(&["0", "0", "1"], &[]), ["PublishUnknown", "accepted", "PublishUnknown"], "twice");
        assert_eq!(
            kinds(&["0", "1", "2"], &[("1", "InternalError", false)]),
            ["accepted", "PublishUnknown", "accepted"],
            "in both"
        );
        assert_eq!(
            kinds(&["3", "-1", "x", "", "00", " 1"], &[("7", "InternalError", false)]),
            ["PublishUnknown"; 3],
            "ids that were not sent"
        );
    }
}
