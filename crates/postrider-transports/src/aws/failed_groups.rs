//! FIFO groups in which a message failed: the messages behind it must not overtake it.

use super::{FailureKind, ServiceError};
use std::collections::BTreeMap;

/// The first error of each group. Messages without a group wait for no other message.
#[derive(Debug, Default)]
pub(super) struct FailedGroups(BTreeMap<String, ServiceError>);

impl FailedGroups {
    /// Records that a message of the group failed.
    pub(super) fn insert(&mut self, group: Option<&str>, error: &ServiceError) {
        if let Some(group) = group {
            self.0.insert(group.to_owned(), error.clone());
        }
    }

    /// The error of the next message of a group, which is not sent. It did not fail itself: it is retried, and while the service or
    /// the address is unavailable, so is its result.
    pub(super) fn error_behind(&self, group: Option<&str>) -> Option<ServiceError> {
        let first = self.0.get(group?)?;
        let kind = match first.kind {
            FailureKind::Unknown | FailureKind::Reject => FailureKind::Retry(None),
            kind => kind,
        };
        let reason = format!("not sent: an earlier message of its group was not accepted: {}", first.reason);
        Some(ServiceError::new(kind, reason))
    }
}
