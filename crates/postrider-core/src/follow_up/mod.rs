//! Follow-ups: calls to others that must follow a change of one's own.
//!
//! A follow-up is a message. It is staged in the transaction of the change that calls for it, through every driver and in plain SQL,
//! and waits, is leased and is retried like any other. What makes it one:
//!
//! | of a follow-up | in its message |
//! |---|---|
//! | identity, which is the idempotency key of the call | `id` |
//! | whom it is about | `subject` (and `tenant`) |
//! | what is to be done | `event_type`: `erase`, `rectify` … |
//! | who does it | header `followup-resolver` |
//! | what that one knows the subject by | headers `followup-kind`, `followup-value`, and `followup-extra` as a JSON object of texts |
//! | what it needs besides | the payload, with its content type; empty if there is nothing |
//!
//! Where it is tells what state it is in: see [`Status`]. All follow-ups of one subject and one operation in one queue belong together
//! ([`Group`]): when the last of them has landed, exactly one runner is told.

mod docket;
mod follow;
mod reference;
mod staging;
mod status;

pub use docket::{Docket, Erased, FollowUps, Which};
pub use follow::{Follow, Group, Landing};
pub use reference::Reference;
pub use staging::FollowUpExt;
pub use status::{Status, StatusCounts};

use crate::{
    Codec, EventType, IntoMessage, Invalid, Json, Message, MessageId, QueueName, ResolverName, SubjectId,
    TenantId, saga::Part,
};
use bytes::Bytes;
use serde::Serialize;
use std::{fmt, time::SystemTime};

/// The queue in which follow-ups wait unless they are told another.
pub const QUEUE: &str = "follow-ups";

const RESOLVER: &str = "followup-resolver";

/// One call to somebody else that must follow a change of one's own.
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

/// What a resolver needs besides the reference.
#[derive(Clone, PartialEq)]
struct Carried {
    bytes: Bytes,
    content_type: String,
}

impl FollowUp {
    /// `resolver` is to carry out `operation` for `subject`, whom it knows by `reference`. Subjects are told apart by their text alone
    /// (and by their tenant): two that share one would be taken for one.
    ///
    /// # Errors
    /// When a name is empty, longer than 255 bytes, or holds a character that it must not.
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

    /// Under this identity: staging it again changes nothing while the first is known.
    #[must_use]
    pub fn with_id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// In this queue.
    #[must_use]
    pub fn in_queue(mut self, queue: QueueName) -> Self {
        self.queue = queue;
        self
    }

    /// The subject is this tenant's.
    #[must_use]
    pub fn of_tenant(mut self, tenant: TenantId) -> Self {
        self.tenant = Some(tenant);
        self
    }

    /// With something that the resolver needs besides, as JSON. It is forgotten as soon as the follow-up has ended.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn with_json(self, value: &(impl Serialize + ?Sized)) -> Result<Self, Invalid> {
        let bytes = crate::codec::to_json(value)
            .map_err(|error| Invalid::rule("payload", format!("cannot be written as JSON: {error}")))?;
        Ok(self.with_payload(bytes, <Json as Codec<()>>::CONTENT_TYPE))
    }

    /// With something that the resolver needs besides, as it is.
    #[must_use]
    pub fn with_payload(mut self, bytes: impl Into<Bytes>, content_type: impl Into<String>) -> Self {
        self.payload = Some(Carried { bytes: bytes.into(), content_type: content_type.into() });
        self
    }

    /// Not before this time, by the store's clock.
    #[must_use]
    pub fn not_before(mut self, at: SystemTime) -> Self {
        self.not_before = Some(at);
        self
    }

    /// Its identity, which is the idempotency key of the call. It is given one when it is staged, unless it has one already.
    pub fn id(&self) -> Option<MessageId> {
        self.id
    }

    /// Where it waits.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// Whose subject it is about.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// Whom it is about.
    pub fn subject(&self) -> &SubjectId {
        &self.subject
    }

    /// Who carries it out.
    pub fn resolver(&self) -> &ResolverName {
        &self.resolver
    }

    /// What is to be done.
    pub fn operation(&self) -> &EventType {
        &self.operation
    }

    /// What the resolver knows the subject by.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// What the resolver needs besides.
    pub fn payload(&self) -> Option<&Bytes> {
        self.payload.as_ref().map(|carried| &carried.bytes)
    }

    /// How the payload is to be read.
    pub fn content_type(&self) -> Option<&str> {
        self.payload.as_ref().map(|carried| carried.content_type.as_str())
    }

    /// Which part of a saga it is.
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

    /// With which others it belongs together.
    pub fn group(&self) -> Group {
        Group {
            queue: self.queue.clone(),
            tenant: self.tenant.clone(),
            subject: self.subject.clone(),
            operation: self.operation.clone(),
        }
    }

    /// Reads a message as a follow-up, whoever staged it and however.
    ///
    /// # Errors
    /// Names what it lacks, or what cannot be read.
    pub fn read(message: &Message) -> Result<Self, Invalid> {
        let lacks = |what: &'static str| move || Invalid::rule(what, "is missing: no follow-up goes without");
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

/// Whether a message is meant as a follow-up.
pub fn is_one(message: &Message) -> bool {
    message.headers().get(RESOLVER).is_some()
}

/// Whether a follow-up had a payload once that was forgotten when it ended. What names a content type and carries nothing had.
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
    fn what_is_staged_is_read_again() {
        let tenant = TenantId::new("acme").unwrap();
        for follow_up in [erase(), erase().of_tenant(tenant), erase().with_json(&["new name"]).unwrap()] {
            let message = follow_up.clone().into_message().unwrap();
            assert_eq!(FollowUp::read(&message).unwrap(), follow_up);
        }
    }

    #[test]
    fn what_it_lacks_is_named() {
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
    fn what_it_shows_is_not_personal() {
        let shown = format!("{:?}", erase().with_json("secret").unwrap());
        assert!(!shown.contains("cus_1") && !shown.contains("secret"), "{shown}");
    }
}
