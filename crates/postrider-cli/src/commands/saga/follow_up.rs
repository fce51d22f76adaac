//! A follow-up as the program prints it.

use crate::table::Table;
use postrider::{
    FollowUp, Message, MessageId, State,
    cloudevents::rfc3339,
    follow_up::{FollowUpRow, FollowUpStatus},
    inspect::MessageRow,
};
use serde::Serialize;

/// A follow-up as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
pub(crate) struct FollowUpView {
    id: MessageId,
    status: FollowUpStatus,
    /// The service that is called; none when the message is not a valid follow-up.
    resolver: Option<String>,
    operation: Option<String>,
    tenant: Option<String>,
    subject: Option<String>,
    staged_at: String,
    /// When the follow-up is due, or was abandoned.
    at: String,
    attempts: u32,
    error: Option<String>,
}

impl FollowUpView {
    fn new(id: MessageId, status: FollowUpStatus, message: &Message) -> Self {
        let follow_up = FollowUp::read(message).ok();
        let follow_up = follow_up.as_ref();
        Self {
            id,
            status,
            resolver: follow_up.map(|follow_up| follow_up.resolver().to_string()),
            operation: follow_up.map(|follow_up| follow_up.operation().to_string()),
            tenant: follow_up.and_then(FollowUp::tenant).map(ToString::to_string),
            subject: follow_up.map(|follow_up| follow_up.subject().to_string()),
            staged_at: String::new(),
            at: String::new(),
            attempts: 0,
            error: None,
        }
    }

    /// The follow-up in a message row; none when the message has no id.
    pub(crate) fn of(entry: &MessageRow) -> Option<Self> {
        Some(Self {
            staged_at: rfc3339::format(entry.staged_at),
            at: rfc3339::format(entry.at),
            attempts: entry.deliveries,
            error: entry.error.clone(),
            ..Self::new(entry.message.id()?, status(entry), &entry.message)
        })
    }
}

/// The status of a follow-up, from the state of its message.
fn status(entry: &MessageRow) -> FollowUpStatus {
    match entry.state {
        State::Leased => FollowUpStatus::InFlight,
        State::Dead => FollowUpStatus::Abandoned,
        State::Done => FollowUpStatus::Succeeded,
        State::Scheduled if entry.attempts == 0 && entry.deliveries == 0 => FollowUpStatus::Scheduled,
        State::Pending if entry.attempts == 0 => FollowUpStatus::Pending,
        _ => FollowUpStatus::Failed,
    }
}

impl From<FollowUpRow> for FollowUpView {
    fn from(row: FollowUpRow) -> Self {
        Self {
            staged_at: rfc3339::format(row.staged_at),
            at: rfc3339::format(row.at),
            attempts: row.deliveries,
            error: row.error,
            ..Self::new(row.id, row.status, &row.message)
        }
    }
}

pub(crate) fn table(views: &[FollowUpView]) -> String {
    let mut table = Table::new([
        "ID",
        "STATUS",
        "RESOLVER",
        "OPERATION",
        "SUBJECT",
        "STAGED AT",
        "AT",
        "ATTEMPTS",
        "ERROR",
    ]);
    for view in views {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        table.push([
            view.id.to_string(),
            view.status.to_string(),
            text(&view.resolver),
            text(&view.operation),
            text(&view.subject),
            view.staged_at.clone(),
            view.at.clone(),
            view.attempts.to_string(),
            text(&view.error),
        ]);
    }
    table.to_string()
}
