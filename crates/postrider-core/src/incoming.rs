//! A message as it comes over the wire, and how it is decoded.
//!
//! A source undoes the protocol binding of its broker and nothing else: messages are decoded here, by the same rules for every broker
//! and every sender.
//!
//! | message | recognised by | identity |
//! |---|---|---|
//! | CloudEvents 1.0, structured | the content type `application/cloudevents+json` | the event's `id` |
//! | CloudEvents 1.0, binary | an attribute `specversion` | the event's `id` |
//! | ours, plain or as Debezium's router writes it | a header `postrider-id` | that header |
//! | Debezium's router | a header `id` | that header |
//! | anything else | | the message id of the protocol, if it has one |
//!
//! **Identities are never invented.** A message without an identity cannot be distinguished from its duplicate, so it is rejected. The
//! ordering key is not an identity: many messages share a key.
//!
//! **No sender is trusted.** A message that breaks a rule is undecodable, and the error names the rule. Headers that could not be sent
//! on are left out: brokers add their own.

use crate::{
    Headers, Invalid, Message, MessageBuilder, MessageId, Outgoing, QueueName,
    cloudevents::Envelope,
    message::{is_traceparent, is_tracestate},
};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use std::{borrow::Cow, collections::BTreeMap, time::SystemTime};
use uuid::Uuid;

/// A message as it came over the wire, with the protocol binding undone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incoming {
    /// The queue, subject, topic, stream or path it was read from.
    pub origin: String,
    /// The message id of the protocol, if it has one.
    pub id: Option<String>,
    /// The ordering key of the protocol, if it has one.
    pub key: Option<String>,
    /// The content type of the body.
    pub content_type: Option<String>,
    /// The payload, or a whole structured event.
    pub body: Bytes,
    /// CloudEvents attributes, without the prefix of the transport's binding.
    pub attributes: Vec<(String, String)>,
    /// All other headers.
    pub headers: Vec<(String, String)>,
}

/// A decoded message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct DecodedMessage {
    /// The message id. An id that is not a UUID is mapped to one deterministically.
    pub id: MessageId,
    /// The CloudEvents source, if any.
    pub source: Option<String>,
    /// The time of sending, by the sender's clock.
    pub sent_at: Option<SystemTime>,
    /// The message, in the queue it was decoded for.
    pub message: Message,
}

/// The namespace of ids that are not UUIDs.
const FOREIGN: Uuid = Uuid::from_u128(0x6f37_2c8e_94b1_5d0a_8e6d_13a5_c0de_7a11);
/// The namespace of ids of undecodable messages.
const UNREADABLE: Uuid = Uuid::from_u128(0x1d9e_40f2_7a3c_5b86_91c4_6e02_d7b5_38fa);
/// The header with the origin of a dead letter.
const ORIGIN: &str = "postrider-origin";
/// The header with the attributes and headers of an undecodable message.
const RAW: &str = "postrider-raw";
const STRUCTURED: &str = "application/cloudevents+json";
const OURS: &str = "postrider-";

impl Incoming {
    /// A message that was received from `origin`.
    pub fn new(origin: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self { origin: origin.into(), body: body.into(), ..Self::default() }
    }

    /// Decodes it, as a message of `queue`.
    ///
    /// ```
    /// # use postrider_core::{QueueName, incoming::Incoming};
    /// let mut incoming = Incoming::new("orders", r#"{"total":17}"#);
    /// for (name, value) in [("specversion", "1.0"), ("id", "A-1"), ("source", "/shop"), ("type", "order.placed")] {
    ///     incoming.attributes.push((name.into(), value.into()));
    /// }
    /// let decoded = incoming.read(&QueueName::new("billing")?)?;
    /// assert_eq!(decoded.message.event_type().map(|of| of.as_str()), Some("order.placed"));
    /// # Ok::<(), postrider_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// When it has no identity, claims to be a CloudEvent and is not, or breaks a rule of messages.
    pub fn read(&self, queue: &QueueName) -> Result<DecodedMessage, Invalid> {
        if self.is_structured() {
            return self.read_structured(queue);
        }
        if has(&self.attributes, "specversion") {
            let envelope =
                Envelope::from_attributes(self.attributes.iter().map(|(name, value)| (name, value)))?;
            return self.letter(queue, envelope, self.content_type.as_deref(), self.body.clone());
        }
        let plain: Vec<_> =
            self.headers.iter().filter_map(|(name, value)| Some((ours(name)?, value))).collect();
        if plain.iter().any(|(name, _)| *name == "id") {
            let known = plain.into_iter().map(|(name, value)| (name, value.as_str()));
            let envelope = Envelope::from_attributes(known.chain([("specversion", "1.0")]))?;
            return self.letter(queue, envelope, self.content_type.as_deref(), self.body.clone());
        }
        self.read_bare(queue)
    }

    /// Decodes it like [`read`](Self::read), with this identity in place of its own. A message without an identity gets one.
    ///
    /// # Errors
    /// When the identity is empty, or the message claims to be a CloudEvent and is not, or breaks a rule of messages.
    pub fn read_as(&self, queue: &QueueName, id: &str) -> Result<DecodedMessage, Invalid> {
        if id.is_empty() {
            return Err(Invalid::rule("id", "is empty: a duplicate could not be recognised"));
        }
        let mut decoded = match self.id {
            Some(_) => self.read(queue)?,
            None => Self { id: Some(id.to_owned()), ..self.clone() }.read(queue)?,
        };
        decoded.id = identity(None, id);
        decoded.message = decoded.message.identified(decoded.id);
        Ok(decoded)
    }

    /// The value of a header, or of a CloudEvents attribute, in any case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.headers.iter().chain(&self.attributes);
        pairs.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The dead letter of an undecodable message: a message of `queue` with the body as its payload, everything else in one header, and
    /// a deterministic id, the same for each redelivery. [`kept`](Self::kept) undoes it.
    pub fn keep(&self, queue: &QueueName) -> Message {
        let beside = Beside {
            origin: Cow::Borrowed(&self.origin),
            id: self.id.as_deref().map(Cow::Borrowed),
            key: self.key.as_deref().map(Cow::Borrowed),
            content_type: self.content_type.as_deref().map(Cow::Borrowed),
            attributes: Cow::Borrowed(&self.attributes),
            headers: Cow::Borrowed(&self.headers),
        };
        let beside = serde_json::to_string(&beside).unwrap_or_default();
        let mut whole = beside.clone().into_bytes();
        whole.extend_from_slice(&self.body);
        let id = MessageId::from_uuid(Uuid::new_v5(&UNREADABLE, &whole));
        let mut message = Message::bare(queue.clone(), self.body.clone()).identified(id);
        message.set_own_header(ORIGIN, &self.origin);
        message.set_own_header(RAW, &beside);
        message
    }

    /// Restores a message that [`keep`](Self::keep) wrapped; `None` for a message that could be decoded.
    pub fn kept(message: &Message) -> Option<Self> {
        let beside: Beside<'_> = serde_json::from_str(message.headers().get(RAW)?).ok()?;
        Some(Self {
            origin: beside.origin.into_owned(),
            id: beside.id.map(Cow::into_owned),
            key: beside.key.map(Cow::into_owned),
            content_type: beside.content_type.map(Cow::into_owned),
            body: message.payload().clone(),
            attributes: beside.attributes.into_owned(),
            headers: beside.headers.into_owned(),
        })
    }

    fn is_structured(&self) -> bool {
        let content_type = self.content_type.as_deref().unwrap_or_default();
        content_type.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(STRUCTURED))
    }

    fn read_structured(&self, queue: &QueueName) -> Result<DecodedMessage, Invalid> {
        let broken = |error: &dyn std::fmt::Display| {
            Invalid::rule("body", format!("declared as {STRUCTURED}, but cannot be parsed: {error}"))
        };
        let event: Structured<'_> = serde_json::from_slice(&self.body).map_err(|error| broken(&error))?;
        let attributes = event.attributes.iter().filter_map(|(name, value)| Some((name, text(value)?)));
        let envelope = Envelope::from_attributes(attributes)?;
        let data = match (event.data, event.data_base64) {
            (None, None) => Bytes::new(),
            (Some(data), None) => payload(data, envelope.content_type.as_deref()),
            (None, Some(encoded)) => decode(&encoded).map_err(|error| broken(&error))?.into(),
            (Some(_), Some(_)) => return Err(broken(&"it has both `data` and `data_base64`")),
        };
        let content_type = envelope.content_type.clone();
        self.letter(queue, envelope, content_type.as_deref().or(Some("application/json")), data)
    }

    /// A message of a sender that uses neither CloudEvents nor Postrider's headers.
    fn read_bare(&self, queue: &QueueName) -> Result<DecodedMessage, Invalid> {
        let header = self.headers.iter().find(|(name, _)| name == "id").map(|(_, id)| id);
        let id = header.or(self.id.as_ref()).filter(|id| !id.is_empty()).ok_or_else(|| {
            let rule = "is missing: without one a duplicate could not be told; send CloudEvents, or set the message id of the broker";
            Invalid::rule("id", rule)
        })?;
        let mut builder = self.builder(queue, self.content_type.as_deref(), self.body.clone());
        if let Some(key) = &self.key {
            builder = builder.key(key);
        }
        let id = identity(None, id);
        let message = self.traced(builder).id(id).build()?;
        Ok(DecodedMessage { id, source: None, sent_at: None, message })
    }

    /// The trace from plain W3C headers.
    fn traced(&self, builder: MessageBuilder) -> MessageBuilder {
        let header = |wanted: &str, is_good: fn(&str) -> bool| {
            let found = self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, text)| text).filter(|text| is_good(text))
        };
        let Some(traceparent) = header("traceparent", is_traceparent) else { return builder };
        let builder = builder.traceparent(traceparent);
        match header("tracestate", is_tracestate) {
            Some(tracestate) => builder.tracestate(tracestate),
            None => builder,
        }
    }

    fn letter(
        &self,
        queue: &QueueName,
        envelope: Envelope,
        content_type: Option<&str>,
        payload: Bytes,
    ) -> Result<DecodedMessage, Invalid> {
        let id = identity(Some(&envelope.source), &envelope.id);
        let Envelope { event_type, subject, key, tenant, trail, .. } = envelope;
        let content_type = content_type.or(envelope.content_type.as_deref());
        let mut builder = self.traced(self.builder(queue, content_type, payload).id(id));
        type Set = fn(MessageBuilder, String) -> MessageBuilder;
        let known: [(Option<String>, Set); 8] = [
            (event_type.map(|it| it.to_string()), |builder, value| builder.event_type(value)),
            (subject.map(|it| it.to_string()), |builder, value| builder.subject(value)),
            (key.map(|it| it.to_string()), |builder, value| builder.key(value)),
            (tenant.map(|it| it.to_string()), |builder, value| builder.tenant(value)),
            (trail.correlation_id, |builder, value| builder.correlation_id(value)),
            (trail.causation_id, |builder, value| builder.causation_id(value)),
            (trail.traceparent, |builder, value| builder.traceparent(value)),
            (trail.tracestate, |builder, value| builder.tracestate(value)),
        ];
        for (value, set) in known {
            if let Some(value) = value {
                builder = set(builder, value);
            }
        }
        if let Some(hlc) = trail.hlc {
            builder = builder.hlc(hlc);
        }
        Ok(DecodedMessage {
            id,
            source: Some(envelope.source),
            sent_at: envelope.time,
            message: builder.build()?,
        })
    }

    fn builder(&self, queue: &QueueName, content_type: Option<&str>, payload: Bytes) -> MessageBuilder {
        let mut builder = Message::builder(queue.as_str()).payload(payload);
        if let Some(content_type) = content_type.filter(|text| !text.is_empty()) {
            builder = builder.content_type(content_type);
        }
        // Checked one by one: what cannot be kept is left out.
        let mut kept = Headers::new();
        for (name, value) in &self.headers {
            if kept.insert(name, value).is_ok() {
                builder = builder.header(name, value);
            }
        }
        builder
    }
}

/// The attributes and headers of an undecodable message.
#[derive(Serialize, Deserialize)]
struct Beside<'b> {
    origin: Cow<'b, str>,
    id: Option<Cow<'b, str>>,
    key: Option<Cow<'b, str>>,
    content_type: Option<Cow<'b, str>>,
    attributes: Cow<'b, [(String, String)]>,
    headers: Cow<'b, [(String, String)]>,
}

impl DecodedMessage {
    /// A message that was decoded before, as a store returns it.
    pub fn of(message: Message, id: MessageId, sent_at: SystemTime) -> Self {
        Self { id, source: None, sent_at: Some(sent_at), message }
    }

    /// The message as a dead letter, with its origin in the header `postrider-origin`.
    pub fn keep(&self, origin: &str) -> Message {
        let mut message = self.message.clone().identified(self.id);
        message.set_own_header(ORIGIN, origin);
        message
    }
}

impl From<Outgoing> for Incoming {
    /// The message as a receiver gets it if the wire changes nothing.
    fn from(sent: Outgoing) -> Self {
        Self {
            origin: sent.destination,
            id: Some(sent.id.to_string()),
            key: sent.key.map(|key| key.to_string()),
            content_type: Some(sent.content_type.into()),
            body: sent.body,
            attributes: sent
                .attributes
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect(),
            headers: sent.headers,
        }
    }
}

#[derive(Deserialize)]
struct Structured<'e> {
    #[serde(borrow)]
    data: Option<&'e RawValue>,
    #[serde(borrow)]
    data_base64: Option<Cow<'e, str>>,
    #[serde(flatten)]
    attributes: BTreeMap<String, Value>,
}

/// The data of a structured event: JSON verbatim, other text without its quotes.
fn payload(data: &RawValue, content_type: Option<&str>) -> Bytes {
    let is_json = content_type.is_none_or(crate::outgoing::is_json);
    match serde_json::from_str::<Cow<'_, str>>(data.get()) {
        Ok(text) if !is_json => text.into_owned().into(),
        _ => Bytes::copy_from_slice(data.get().as_bytes()),
    }
}

fn decode(encoded: &str) -> Result<Vec<u8>, base64::DecodeError> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.decode(encoded)
}

/// The text of an attribute: CloudEvents allows numbers and booleans, too.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

fn has(pairs: &[(String, String)], wanted: &str) -> bool {
    pairs.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted))
}

/// The name of a Postrider header without its prefix.
fn ours(name: &str) -> Option<&str> {
    let (start, rest) = name.split_at_checked(OURS.len())?;
    start.eq_ignore_ascii_case(OURS).then_some(rest)
}

/// An id is unique within its source. A UUID is unique everywhere.
fn identity(source: Option<&str>, id: &str) -> MessageId {
    id.parse().unwrap_or_else(|_| {
        let both = format!("{}\n{id}", source.unwrap_or_default());
        MessageId::from_uuid(Uuid::new_v5(&FOREIGN, both.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Hlc};
    use std::time::Duration;

    fn queue() -> QueueName {
        QueueName::new("billing").unwrap()
    }

    fn full() -> Message {
        Message::builder("billing")
            .event_type("order.placed")
            .key("order-17")
            .tenant("acme")
            .subject("customer 3")
            .correlation_id("request-1")
            .causation_id("message-0")
            .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
            .tracestate("rojo=00f067aa0ba902b7")
            .hlc(Hlc::from_bits(1_784_021_400_123 << 16 | 7))
            .header("color", "blue")
            .json(&17)
            .build()
            .unwrap()
    }

    fn staged_at() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_784_021_400_123)
    }

    fn id() -> MessageId {
        "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
    }

    /// As a source gives it.
    fn carried(message: &Message, format: Format) -> Incoming {
        Outgoing::write(message, id(), staged_at(), "/shop", "orders".to_owned(), format).unwrap().into()
    }

    #[test]
    fn message_round_trips_in_every_format() {
        for format in [Format::Binary, Format::Structured, Format::Plain, Format::Debezium] {
            let letter = carried(&full(), format).read(&queue()).unwrap();
            assert_eq!((letter.id, letter.source.as_deref()), (id(), Some("/shop")), "{format:?}");
            assert_eq!(letter.sent_at, Some(staged_at()), "{format:?}");
            let mut expected = full().identified(id());
            if format == Format::Debezium {
                expected = expected.to_builder().id(id()).header("id", id().to_string()).build().unwrap();
            }
            assert_eq!(letter.message, expected, "{format:?}");
        }
    }

    #[test]
    fn binary_payload_round_trips_in_every_format() {
        let bytes = Message::builder("billing").content_type("image/png").payload(vec![0, 159, 146, 150]);
        let message = bytes.build().unwrap();
        for format in [Format::Binary, Format::Structured, Format::Plain, Format::Debezium] {
            let letter = carried(&message, format).read(&queue()).unwrap();
            assert_eq!(letter.message.payload(), message.payload(), "{format:?}");
            assert_eq!(letter.message.content_type(), "image/png", "{format:?}");
        }
    }

    #[test]
    fn structured_text_payload_loses_its_json_quotes() {
        let event = r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/plain","data":"a\"b"}"#;
        let mut incoming = Incoming::new("orders", event);
        incoming.content_type = Some("application/CloudEvents+JSON; charset=utf-8".to_owned());
        let letter = incoming.read(&queue()).unwrap();
        assert_eq!(letter.message.payload(), "a\"b");
        assert_eq!(letter.message.content_type(), "text/plain");
    }

    #[test]
    fn foreign_id_maps_to_a_stable_uuid_per_source() {
        let read = |source: &str, id: &str| {
            let mut incoming = Incoming::new("orders", "");
            for (name, value) in [("specversion", "1.0"), ("id", id), ("source", source), ("type", "t")] {
                incoming.attributes.push((name.to_owned(), value.to_owned()));
            }
            incoming.read(&queue()).unwrap().id
        };
        assert_eq!(read("/a", "17"), read("/a", "17"));
        assert_ne!(read("/a", "17"), read("/b", "17"));
        assert_ne!(read("/a", "17"), read("/a", "18"));
        assert_eq!(read("/a", "01890a5d-ac96-774b-bcce-b302099a8057"), id());
    }

    #[test]
    fn bare_message_without_id_is_rejected_and_key_is_no_id() {
        let mut bare = Incoming::new("orders", "x");
        bare.key = Some("order-17".to_owned());
        let error = bare.read(&queue()).unwrap_err().to_string();
        assert!(error.starts_with("id: is missing"), "{error}");
        bare.id = Some("A-1".to_owned());
        let letter = bare.read(&queue()).unwrap();
        assert_eq!(letter.message.key().map(crate::OrderingKey::as_str), Some("order-17"));
        // Debezium's header says more than the broker.
        bare.headers.push(("id".to_owned(), id().to_string()));
        assert_eq!(bare.read(&queue()).unwrap().id, id());
    }

    #[test]
    fn malformed_cloudevent_is_undecodable() {
        let mut incoming = Incoming::new("orders", "{");
        incoming.content_type = Some(STRUCTURED.to_owned());
        let error = incoming.read(&queue()).unwrap_err().to_string();
        assert!(
            error.starts_with("body: declared as application/cloudevents+json, but cannot be parsed: "),
            "{error}"
        );
        incoming.body =
            r#"{"specversion":"1.0","id":"1","source":"/s","type":"t","data":1,"data_base64":"AA=="}"#.into();
        assert!(incoming.read(&queue()).unwrap_err().to_string().contains("both"));
        let mut incoming = Incoming::new("orders", "");
        incoming.attributes.push(("specversion".to_owned(), "0.3".to_owned()));
        assert!(incoming.read(&queue()).unwrap_err().to_string().starts_with("specversion: "));
    }

    #[test]
    fn undecodable_message_is_kept_whole_under_a_stable_id() {
        let mut incoming = carried(&full(), Format::Binary);
        incoming.attributes.retain(|(name, _)| name != "id");
        incoming.headers.push(("lines".to_owned(), "a\n\0b".to_owned()));
        incoming.body = Bytes::from_static(&[0, 159]);
        let message = incoming.keep(&queue());
        assert_eq!((message.payload(), message.id()), (&incoming.body, incoming.keep(&queue()).id()));
        assert_eq!(message.headers().get("postrider-origin"), Some("orders"));
        assert_eq!(Incoming::kept(&message), Some(incoming.clone()));
        let other = Incoming { body: Bytes::from_static(b"other"), ..incoming };
        assert_ne!(message.id(), other.keep(&queue()).id());
        assert_eq!(Incoming::kept(&full()), None);
    }

    #[test]
    fn invalid_headers_are_dropped() {
        let mut incoming = carried(&full(), Format::Binary);
        incoming.headers.push(("x y".to_owned(), "white space".to_owned()));
        incoming.headers.push(("x-death".to_owned(), "1".to_owned()));
        incoming.headers.push(("lines".to_owned(), "a\nb".to_owned()));
        let headers = incoming.read(&queue()).unwrap().message.headers().clone();
        let names: Vec<_> = headers.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["color", "x-death"]);
    }
}
