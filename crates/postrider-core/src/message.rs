//! A message and its builder.

use crate::{
    Codec, CodecError, EventType, Headers, Hlc, Invalid, Json, MessageId, OrderingKey, QueueName, SubjectId,
    TenantId, Text, TimerName, codec,
    limits::{self, Charset},
};
use bytes::Bytes;
use serde::Serialize;
use std::time::{Duration, SystemTime};

/// The default content type.
pub const DEFAULT_CONTENT_TYPE: &str = "application/json";

/// A message: an opaque payload and its metadata.
///
/// A built message is valid: [`MessageBuilder::build`] checks names, headers and times.
///
/// ```
/// # use postrider_core::Message;
/// # use std::time::Duration;
/// let message = Message::builder("orders")
///     .event_type("order.placed")
///     .key("order-17")
///     .json(&serde_json::json!({ "order": 17 }))
///     .due_after(Duration::from_secs(60))
///     .build()?;
/// assert_eq!(message.queue().as_str(), "orders");
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub(crate) id: Option<MessageId>,
    pub(crate) queue: QueueName,
    pub(crate) payload: Bytes,
    pub(crate) content_type: Option<String>,
    pub(crate) event_type: Option<EventType>,
    pub(crate) key: Option<OrderingKey>,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) subject: Option<SubjectId>,
    pub(crate) trail: Trail,
    pub(crate) headers: Headers,
    pub(crate) due: Due,
    pub(crate) timer: Option<Timer>,
}

/// The causality of a message: the request, the message and the trace that led to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// The correlation id, shared by all messages that one request caused.
    pub correlation_id: Option<String>,
    /// The id of the message whose handling staged this one.
    pub causation_id: Option<String>,
    /// The W3C trace context of the code that staged it.
    pub traceparent: Option<String>,
    /// The W3C `tracestate`.
    pub tracestate: Option<String>,
    /// The hybrid logical clock's reading when it was staged.
    pub hlc: Option<Hlc>,
}

/// The due time of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Due {
    /// Due at once.
    #[default]
    Now,
    /// Due after this time, by the store's clock.
    After(Duration),
    /// Due at this time, by the store's clock.
    At(SystemTime),
}

/// A named timer: a queue has at most one active timer of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timer {
    /// Its name.
    pub name: TimerName,
    /// The behaviour when a timer of that name is active already.
    pub on_conflict: OnConflict,
}

/// The behaviour when a timer is staged while one of the same name is active.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnConflict {
    /// The active timer stays unchanged.
    #[default]
    Ignore,
    /// The active timer takes the new payload and the later of both due times, unless it is being delivered.
    Extend,
}

impl Message {
    /// Begins a message for `queue`. The name is checked by [`MessageBuilder::build`], with everything else.
    pub fn builder(queue: impl Into<String>) -> MessageBuilder {
        MessageBuilder { queue: queue.into(), ..MessageBuilder::default() }
    }

    /// The id; `None` before staging, unless the producer set one.
    pub fn id(&self) -> Option<MessageId> {
        self.id
    }

    /// The queue.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// The payload.
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// The content type of the payload.
    pub fn content_type(&self) -> &str {
        self.content_type.as_deref().unwrap_or(DEFAULT_CONTENT_TYPE)
    }

    /// The content type as shared text.
    pub(crate) fn content_type_text(&self) -> Text {
        self.content_type.clone().map_or(DEFAULT_CONTENT_TYPE.into(), Text::from)
    }

    /// The event type.
    pub fn event_type(&self) -> Option<&EventType> {
        self.event_type.as_ref()
    }

    /// The ordering key.
    pub fn key(&self) -> Option<&OrderingKey> {
        self.key.as_ref()
    }

    /// The tenant.
    pub fn tenant(&self) -> Option<&TenantId> {
        self.tenant.as_ref()
    }

    /// The subject.
    pub fn subject(&self) -> Option<&SubjectId> {
        self.subject.as_ref()
    }

    /// Correlation, causation and trace.
    pub fn trail(&self) -> &Trail {
        &self.trail
    }

    /// The headers.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The due time.
    pub fn due(&self) -> Due {
        self.due
    }

    /// The named timer, if it is one.
    pub fn timer(&self) -> Option<&Timer> {
        self.timer.as_ref()
    }

    /// A message with a payload and nothing else.
    pub(crate) fn bare(queue: QueueName, payload: Bytes) -> Self {
        Self {
            id: None,
            queue,
            payload,
            content_type: None,
            event_type: None,
            key: None,
            tenant: None,
            subject: None,
            trail: Trail::default(),
            headers: Headers::new(),
            due: Due::Now,
            timer: None,
        }
    }

    /// Sets a header with the reserved prefix, which producers cannot set.
    pub(crate) fn set_own_header(&mut self, name: &'static str, value: &str) {
        self.headers.set_own(name, value);
    }

    /// The same message with this id, as a store returns it.
    #[must_use]
    pub fn identified(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// The same message with the same id in another queue, due at once and not a timer.
    #[must_use]
    pub fn redirected(&self, queue: QueueName) -> Self {
        Self { queue, due: Due::Now, timer: None, ..self.clone() }
    }

    /// A builder with the values of this message except id and due time, to change some of them.
    ///
    /// ```
    /// # use postrider_core::Message;
    /// let order = Message::builder("orders").event_type("order.placed").key("order-17").json(&17).build()?;
    /// let copy = order.to_builder().payload("").build()?;
    /// assert_eq!((copy.key(), copy.event_type()), (order.key(), order.event_type()));
    /// # Ok::<(), postrider_core::Invalid>(())
    /// ```
    pub fn to_builder(&self) -> MessageBuilder {
        MessageBuilder {
            queue: self.queue.to_string(),
            payload: self.payload.clone(),
            content_type: self.content_type.clone(),
            event_type: self.event_type.as_ref().map(ToString::to_string),
            key: self.key.as_ref().map(ToString::to_string),
            tenant: self.tenant.as_ref().map(ToString::to_string),
            subject: self.subject.as_ref().map(ToString::to_string),
            trail: self.trail.clone(),
            headers: self.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ..MessageBuilder::default()
        }
    }

    /// A message as a store kept it. Nothing is validated again: a stored message must stay readable.
    pub fn stored(parts: StoredParts) -> Self {
        Self {
            id: Some(parts.id),
            queue: parts.queue,
            payload: parts.payload,
            content_type: parts.content_type,
            event_type: parts.event_type,
            key: parts.key,
            tenant: parts.tenant,
            subject: parts.subject,
            trail: parts.trail,
            headers: parts.headers,
            due: Due::Now,
            timer: parts.timer.map(|name| Timer { name, on_conflict: OnConflict::Ignore }),
        }
    }
}

/// The parts of a stored message, for [`Message::stored`].
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the fields are those of the message")]
pub struct StoredParts {
    pub id: MessageId,
    pub queue: QueueName,
    pub payload: Bytes,
    pub content_type: Option<String>,
    pub event_type: Option<EventType>,
    pub key: Option<OrderingKey>,
    pub tenant: Option<TenantId>,
    pub subject: Option<SubjectId>,
    pub trail: Trail,
    pub headers: Headers,
    pub timer: Option<TimerName>,
}

/// Builds a message; [`build`](Self::build) validates it.
#[derive(Debug, Clone, Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct MessageBuilder {
    id: Option<MessageId>,
    queue: String,
    payload: Bytes,
    unencodable: Option<String>,
    content_type: Option<String>,
    event_type: Option<String>,
    key: Option<String>,
    tenant: Option<String>,
    subject: Option<String>,
    trail: Trail,
    headers: Vec<(String, String)>,
    due_after: Option<Duration>,
    due_at: Option<SystemTime>,
    timer: Option<(String, OnConflict)>,
}

impl MessageBuilder {
    /// Sets the id. Staging the same id in the same queue again changes nothing.
    pub fn id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }

    /// Sets the payload. Set its [`content_type`](Self::content_type) unless it is JSON.
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Sets the payload to `value` as JSON.
    pub fn json(self, value: &(impl Serialize + ?Sized)) -> Self {
        self.carry(codec::to_json(value), <Json as Codec<()>>::CONTENT_TYPE)
    }

    /// Sets the payload to `value` encoded by the codec `C`.
    pub fn encoded<T, C: Codec<T>>(self, value: &T) -> Self {
        self.carry(C::encode(value), C::CONTENT_TYPE)
    }

    fn carry(mut self, encoded: Result<Bytes, CodecError>, content_type: &str) -> Self {
        match encoded {
            Ok(payload) => {
                self.payload = payload;
                self.content_type = Some(content_type.to_owned());
            }
            Err(CodecError::Encode(reason) | CodecError::Decode(reason)) => {
                self.unencodable = Some(reason.to_string());
            }
        }
        self
    }

    /// Sets the content type of the payload. The default is JSON.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Sets the event type, such as `order.placed`.
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Sets the ordering key: it orders messages on queues ordered by key, and routes them on brokers that partition.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the tenant.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Sets the tenant, unless one is set.
    pub fn default_tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant.get_or_insert_with(|| tenant.into());
        self
    }

    /// Sets the subject.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// Sets the correlation id, shared by all messages that one request caused.
    pub fn correlation_id(mut self, id: impl Into<String>) -> Self {
        self.trail.correlation_id = Some(id.into());
        self
    }

    /// Sets the causation id: the message whose handling staged this one.
    pub fn causation_id(mut self, id: impl Into<String>) -> Self {
        self.trail.causation_id = Some(id.into());
        self
    }

    /// Sets the W3C `traceparent`. With the feature `opentelemetry` a message without one takes that of
    /// the current span when it is staged.
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.trail.traceparent = Some(traceparent.into());
        self
    }

    /// Sets the W3C `tracestate`.
    pub fn tracestate(mut self, tracestate: impl Into<String>) -> Self {
        self.trail.tracestate = Some(tracestate.into());
        self
    }

    /// Sets the reading of the hybrid logical clock.
    pub fn hlc(mut self, hlc: Hlc) -> Self {
        self.trail.hlc = Some(hlc);
        self
    }

    /// Sets the reading of the hybrid logical clock, unless one is set.
    pub fn default_hlc(mut self, hlc: impl FnOnce() -> Hlc) -> Self {
        self.trail.hlc.get_or_insert_with(hlc);
        self
    }

    /// Sets a header.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Makes it due `after` staging, by the store's clock.
    pub fn due_after(mut self, after: Duration) -> Self {
        self.due_after = Some(after);
        self
    }

    /// Makes it due at `at`, by the store's clock. Takes the times of `std`, `time`, `jiff` and `chrono`.
    pub fn due_at(mut self, at: impl Into<SystemTime>) -> Self {
        self.due_at = Some(at.into());
        self
    }

    /// Makes it a named timer. If one of that name is active, that one stays unchanged.
    pub fn timer(mut self, name: impl Into<String>) -> Self {
        self.timer = Some((name.into(), OnConflict::Ignore));
        self
    }

    /// Makes it a named timer. If one of that name is scheduled, that one takes the new payload and the later due time.
    pub fn extending_timer(mut self, name: impl Into<String>) -> Self {
        self.timer = Some((name.into(), OnConflict::Extend));
        self
    }

    /// Validates and builds the message.
    ///
    /// # Errors
    /// Names the first invalid field and its rule.
    pub fn build(self) -> Result<Message, Invalid> {
        if let Some(reason) = self.unencodable {
            return Err(Invalid::rule("payload", format!("cannot be encoded: {reason}")));
        }
        let queue = QueueName::new(self.queue)?;
        let due = match (self.due_after, self.due_at) {
            (Some(_), Some(_)) => {
                return Err(Invalid::rule(
                    "due_at",
                    "cannot be combined with due_after: give one of the two",
                ));
            }
            (Some(after), None) => limits::due_after(after).map(|()| match after {
                Duration::ZERO => Due::Now,
                after => Due::After(after),
            })?,
            (None, Some(at)) => limits::due_at(at).map(|()| Due::At(at))?,
            (None, None) => Due::Now,
        };
        let timer = self
            .timer
            .map(|(name, on_conflict)| TimerName::new(name).map(|name| Timer { name, on_conflict }))
            .transpose()?;
        let event_type = self.event_type.map(EventType::new).transpose()?;
        let key = self.key.map(OrderingKey::new).transpose()?;
        let tenant = self.tenant.map(TenantId::new).transpose()?;
        let subject = self.subject.map(SubjectId::new).transpose()?;
        let content_type = self.content_type.filter(|given| given != DEFAULT_CONTENT_TYPE);
        if let Some(content_type) = &content_type {
            limits::text("content_type", limits::NAME_BYTES, Charset::Line, content_type)?;
        }
        self.trail.check()?;
        let mut headers = Headers::new();
        for (name, value) in self.headers {
            headers.insert(name, value)?;
        }
        Ok(Message {
            id: self.id,
            queue,
            payload: self.payload,
            content_type,
            event_type,
            key,
            tenant,
            subject,
            trail: self.trail,
            headers,
            due,
            timer,
        })
    }
}

impl Trail {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn check(&self) -> Result<(), Invalid> {
        for (field, value) in [("correlation_id", &self.correlation_id), ("causation_id", &self.causation_id)]
        {
            if let Some(value) = value {
                limits::name(field, Charset::Line, value)?;
            }
        }
        if let Some(traceparent) = &self.traceparent
            && !is_traceparent(traceparent)
        {
            return Err(Invalid::rule(
                "traceparent",
                "is not a W3C trace context such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            ));
        }
        if let Some(tracestate) = &self.tracestate {
            if self.traceparent.is_none() {
                return Err(Invalid::rule("tracestate", "means nothing without a traceparent: give both"));
            }
            if !is_tracestate(tracestate) {
                return Err(Invalid::rule(
                    "tracestate",
                    "is not a W3C trace state such as vendor=value, of at most 512 printable ASCII characters",
                ));
            }
        }
        Ok(())
    }
}

/// Whether it can travel. What the entries mean is the tracing systems' affair.
pub(crate) fn is_tracestate(text: &str) -> bool {
    let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    is_printable && text.len() <= limits::TRACESTATE_BYTES && text.contains('=')
}

pub(crate) fn is_traceparent(text: &str) -> bool {
    let hex = |part: &str, len| {
        part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let parts: Vec<_> = text.split('-').collect();
    matches!(parts[..], [version, trace, parent, flags]
        if hex(version, 2) && version != "ff" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2)
            && trace.bytes().any(|b| b != b'0') && parent.bytes().any(|b| b != b'0'))
}
