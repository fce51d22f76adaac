//! Follow-ups: external calls that must follow a local change.
//!
//! A follow-up is a message. It is staged in the transaction of the local change, through every driver and in plain SQL, and is leased
//! and retried like any other message. Its parts:
//!
//! | part of a follow-up | in its message |
//! |---|---|
//! | idempotency key of the call | `id` |
//! | subject | `subject` (and `tenant`) |
//! | operation | `event_type`: `erase`, `rectify` … |
//! | resolver | header `followup-resolver` |
//! | reference: how the resolver knows the subject | headers `followup-kind`, `followup-value`, and `followup-extra` as a JSON object of texts |
//! | further data | the payload, with its content type; may be empty |
//!
//! Its status follows from the state of the message: see [`FollowUpStatus`]. All follow-ups of one subject and operation in a queue form
//! a [`FollowUpGroup`]: when the last of them succeeds, exactly one runner detects the completion.

mod group;
mod reference;
mod rows;
mod staging;
mod status;

pub use group::{FollowUpGroup, GroupProgress};
pub use reference::Reference;
pub use rows::{ErasureReport, FollowUpFilter, FollowUpRow};
pub use staging::FollowUpExt;
pub use status::{FollowUpStatus, StatusCounts};

use crate::{
    Codec, EventType, IntoMessage, Invalid, Json, Message, MessageId, QueueName, ResolverName, SubjectId,
    TenantId, saga::Part,
};
use bytes::Bytes;
use serde::Serialize;
use std::{fmt, time::SystemTime};

/// The default queue of follow-ups.
pub const QUEUE: &str = "follow-ups";

const RESOLVER: &str = "followup-resolver";

/// One external call that must follow a local change.
///
/// ```
/// # use postrider_core::{FollowUp, Reference};
/// let erase = FollowUp::new("customer-17", "payments", "erase", Reference::new("customer", "cus_NffrFeUfNV2Hib"))?;
/// assert_eq!(erase.operation().as_str(), "erase");
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct FollowUp {
    id: Option<MessageId>,
    queue: QueueName,
    tenant: Option<TenantId>,
    subject: SubjectId,
    resolver: ResolverName,
    operation: EventType,
    reference: Reference,
    payload: Option<Carried>,
    not_before: Option<SystemTime>,
    part: Option<Part>,
}

/// Further data for a resolver.
#[derive(Clone, PartialEq)]
struct Carried {
    bytes: Bytes,
    content_type: String,
}

impl FollowUp {
    /// A call of `resolver` to carry out `operation` for `subject`, which it knows by `reference`. Subjects are compared by text and
    /// tenant: two that share both are the same subject.
    ///
    /// # Errors
    /// When a name is empty, longer than 255 bytes, or has a character that is not allowed.
    pub fn new(
        subject: impl Into<String>,
        resolver: impl Into<String>,
        operation: impl Into<String>,
        reference: Reference,
    ) -> Result<Self, Invalid> {
        Ok(Self {
            id: None,
            queue: QueueName::new(QUEUE)?,
            tenant: None,
            subject: SubjectId::new(subject.into())?,
            resolver: ResolverName::new(resolver.into())?,
            operation: EventType::new(operation.into())?,
            reference,
            payload: None,
            not_before: None,
            part: None,
        })
    }

    /// Sets the id: staging it again changes nothing while the first is known.
    #[must_use]
    pub fn with_id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the queue.
    #[must_use]
    pub fn in_queue(mut self, queue: QueueName) -> Self {
        self.queue = queue;
        self
    }

    /// Sets the tenant of the subject.
    #[must_use]
    pub fn of_tenant(mut self, tenant: TenantId) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// Adds further data for the resolver, as JSON. The data is deleted when the follow-up ends.
    ///
    /// # Errors
    /// When the value cannot be encoded as JSON.
    pub fn with_json(self, value: &(impl Serialize + ?Sized)) -> Result<Self, Invalid> {
        let bytes = crate::codec::to_json(value)
            .map_err(|error| Invalid::rule("payload", format!("cannot be written as JSON: {error}")))?;
        Ok(self.with_payload(bytes, <Json as Codec<()>>::CONTENT_TYPE))
    }

    /// Adds further data for the resolver, verbatim.
    #[must_use]
    pub fn with_payload(mut self, bytes: impl Into<Bytes>, content_type: impl Into<String>) -> Self {
        self.payload = Some(Carried { bytes: bytes.into(), content_type: content_type.into() });
        self
    }

    /// Schedules the call for this time or later, by the store's clock.
    #[must_use]
    pub fn not_before(mut self, at: SystemTime) -> Self {
        self.not_before = Some(at);
        self
    }

    /// The id, which is the idempotency key of the call. Staging sets one if there is none.
    pub fn id(&self) -> Option<MessageId> {
        self.id
    }

    /// The queue.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The tenant of the subject.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// The subject.
    pub fn subject(&self) -> &SubjectId {
        &self.subject
    }

    /// The resolver.
    pub fn resolver(&self) -> &ResolverName {
        &self.resolver
    }

    /// The operation.
    pub fn operation(&self) -> &EventType {
        &self.operation
    }

    /// The reference by which the resolver knows the subject.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// The further data.
    pub fn payload(&self) -> Option<&Bytes> {
        self.payload.as_ref().map(|carried| &carried.bytes)
    }

    /// The content type of the further data.
    pub fn content_type(&self) -> Option<&str> {
        self.payload.as_ref().map(|carried| carried.content_type.as_str())
    }

    /// The saga step it belongs to, if any.
    pub fn part(&self) -> Option<&Part> {
        self.part.as_ref()
    }

    /// Another call about the same subject, known by the same reference. Due at once.
    pub(crate) fn like(&self, resolver: ResolverName, operation: EventType) -> Self {
        Self { id: None, resolver, operation, payload: None, not_before: None, part: None, ..self.clone() }
    }

    pub(crate) fn being_part(mut self, part: Part) -> Self {
        self.part = Some(part);
        self
    }

    /// Its group.
    pub fn group(&self) -> FollowUpGroup {
        FollowUpGroup {
            queue: self.queue.clone(),
            tenant: self.tenant.clone(),
            subject: self.subject.clone(),
            operation: self.operation.clone(),
        }
    }

    /// Decodes a message as a follow-up.
    ///
    /// # Errors
    /// Names the missing or malformed part.
    pub fn read(message: &Message) -> Result<Self, Invalid> {
        let lacks = |what: &'static str| move || Invalid::rule(what, "is missing: every follow-up needs it");
        let headers = message.headers();
        let payload = (!message.payload().is_empty()).then(|| Carried {
            bytes: message.payload().clone(),
            content_type: message.content_type().to_owned(),
        });
        Ok(Self {
            id: message.id(),
            queue: message.queue().clone(),
            tenant: message.tenant().cloned(),
            subject: message.subject().cloned().ok_or_else(lacks("subject"))?,
            resolver: ResolverName::new(headers.get(RESOLVER).ok_or_else(lacks(RESOLVER))?)?,
            operation: message.event_type().cloned().ok_or_else(lacks("operation (the message's type)"))?,
            reference: Reference::read(headers)?,
            payload,
            not_before: None,
            part: Part::read(headers)?,
        })
    }
}

/// Whether a message is a follow-up.
pub fn is_one(message: &Message) -> bool {
    message.headers().get(RESOLVER).is_some()
}

/// Whether the payload of a follow-up was deleted when it ended: it has a content type and no payload.
pub fn has_forgotten(message: &Message) -> bool {
    message.payload().is_empty() && message.content_type.is_some()
}

impl IntoMessage for FollowUp {
    fn into_message(self) -> Result<Message, Invalid> {
        let mut builder = Message::builder(self.queue.as_str())
            .subject(self.subject.as_str())
            .event_type(self.operation.as_str())
            .header(RESOLVER, self.resolver.as_str());
        for (name, value) in self.reference.headers()? {
            builder = builder.header(name, value);
        }
        for (name, value) in self.part.iter().flat_map(Part::headers) {
            builder = builder.header(name, value);
        }
        if let Some(id) = self.id {
            builder = builder.id(id);
        }
        if let Some(tenant) = &self.tenant {
            builder = builder.tenant(tenant.as_str());
        }
        if let Some(Carried { bytes, content_type }) = self.payload {
            builder = builder.payload(bytes).content_type(content_type);
        }
        if let Some(at) = self.not_before {
            builder = builder.due_at(at);
        }
        builder.build()
    }
}

impl fmt::Debug for FollowUp {
    /// Shows neither reference nor payload: they may carry personal data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowUp")
            .field("id", &self.id)
            .field("resolver", &self.resolver)
            .field("operation", &self.operation)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn erase() -> FollowUp {
        let reference = Reference::new("customer", "cus_1").with("region", "eu");
        FollowUp::new("customer-17", "payments", "erase", reference).unwrap()
    }

    #[test]
    fn follow_up_round_trips_through_its_message() {
        let tenant = TenantId::new("acme").unwrap();
        for follow_up in [erase(), erase().of_tenant(tenant), erase().with_json(&["new name"]).unwrap()] {
            let message = follow_up.clone().into_message().unwrap();
            assert_eq!(FollowUp::read(&message).unwrap(), follow_up);
        }
    }

    #[test]
    fn follow_up_with_missing_part_is_rejected_with_its_name() {
        let message = erase().into_message().unwrap();
        let without_subject = Message::builder("follow-ups").event_type("erase").build().unwrap();
        let error = FollowUp::read(&without_subject).unwrap_err().to_string();
        assert!(error.contains("subject"), "{error}");
        let headerless = Message::builder("follow-ups").event_type("erase").subject("17").build().unwrap();
        let error = FollowUp::read(&headerless).unwrap_err().to_string();
        assert!(error.contains("followup-resolver"), "{error}");
        assert!(FollowUp::read(&message).is_ok());
    }

    #[test]
    fn follow_up_debug_shows_no_personal_data() {
        let shown = format!("{:?}", erase().with_json("secret").unwrap());
        assert!(!shown.contains("cus_1") && !shown.contains("secret"), "{shown}");
    }
}
