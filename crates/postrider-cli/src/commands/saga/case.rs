//! A follow-up for programs.

use crate::table::Table;
use postrider::{
    FollowUp, Message, MessageId, State,
    cloudevents::rfc3339,
    follow_up::{Docket, Status},
    inspect::Entry,
};
use serde::Serialize;

/// Its keys are a promise.
#[derive(Debug, Serialize)]
pub(crate) struct Case {
    id: MessageId,
    status: Status,
    /// What is called; nothing of a message that is no follow-up.
    resolver: Option<String>,
    operation: Option<String>,
    tenant: Option<String>,
    subject: Option<String>,
    staged_at: String,
    /// When it is due, or was given up.
    at: String,
    attempts: u32,
    error: Option<String>,
}

impl Case {
    fn new(id: MessageId, status: Status, message: &Message) -> Self {
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

    /// A message as an operator sees it, if it has an identity.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        Some(Self {
            staged_at: rfc3339::format(entry.staged_at),
            at: rfc3339::format(entry.at),
            attempts: entry.deliveries,
            error: entry.error.clone(),
            ..Self::new(entry.message.id()?, status(entry), &entry.message)
        })
    }
}

/// What state a follow-up is in whose message is in this state.
fn status(entry: &Entry) -> Status {
    match entry.state {
        State::Leased => Status::InFlight,
        State::Dead => Status::Abandoned,
        State::Done => Status::Succeeded,
        State::Waiting if entry.attempts == 0 && entry.deliveries == 0 => Status::Scheduled,
        State::Pending if entry.attempts == 0 => Status::Pending,
        _ => Status::Failed,
    }
}

impl From<Docket> for Case {
    fn from(docket: Docket) -> Self {
        Self {
            staged_at: rfc3339::format(docket.staged_at),
            at: rfc3339::format(docket.at),
            attempts: docket.deliveries,
            error: docket.error,
            ..Self::new(docket.id, docket.status, &docket.message)
        }
    }
}

pub(crate) fn table(cases: &[Case]) -> String {
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
    for case in cases {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        table.push([
            case.id.to_string(),
            case.status.to_string(),
            text(&case.resolver),
            text(&case.operation),
            text(&case.subject),
            case.staged_at.clone(),
            case.at.clone(),
            case.attempts.to_string(),
            text(&case.error),
        ]);
    }
    table.to_string()
}
