//! A message as the program prints it.

use postrider::{
    EventType, MessageId, OrderingKey, QueueName, Reason, State, SubjectId, TenantId, cloudevents::rfc3339,
    inspect::MessageRow,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// A message as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
pub(super) struct MessageView {
    pub(super) id: Option<MessageId>,
    pub(super) queue: QueueName,
    pub(super) state: State,
    #[serde(rename = "type")]
    pub(super) event_type: Option<EventType>,
    pub(super) key: Option<OrderingKey>,
    pub(super) tenant: Option<TenantId>,
    pub(super) subject: Option<SubjectId>,
    pub(super) staged_at: String,
    /// When the message is or was due; for a dead letter, when it failed; for a kept message, when it was delivered.
    pub(super) at: String,
    pub(super) deliveries: u32,
    pub(super) attempts: u32,
    pub(super) reason: Option<Reason>,
    pub(super) error: Option<String>,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) content_type: String,
    pub(super) payload_bytes: usize,
    /// Only on request, and only when the payload is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload: Option<String>,
    /// Only on request, and only when the payload is binary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload_hex: Option<String>,
}

impl MessageView {
    pub(super) fn new(entry: &MessageRow, with_payload: bool) -> Self {
        let message = &entry.message;
        let bytes = message.payload();
        let text = std::str::from_utf8(bytes).ok();
        let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            id: message.id(),
            queue: message.queue().clone(),
            state: entry.state,
            event_type: message.event_type().cloned(),
            key: message.key().cloned(),
            tenant: message.tenant().cloned(),
            subject: message.subject().cloned(),
            staged_at: rfc3339::format(entry.staged_at),
            at: rfc3339::format(entry.at),
            deliveries: entry.deliveries,
            attempts: entry.attempts,
            reason: entry.reason,
            error: entry.error.clone(),
            headers: message
                .headers()
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            content_type: message.content_type().to_owned(),
            payload_bytes: bytes.len(),
            payload: text.filter(|_| with_payload).map(str::to_owned),
            payload_hex: (with_payload && text.is_none()).then(hex),
        }
    }

    pub(super) fn id(&self) -> String {
        text(self.id.as_ref())
    }
}

/// The text of a value; empty when there is none.
pub(super) fn text(value: Option<&impl ToString>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}
