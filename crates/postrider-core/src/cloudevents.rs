//! The metadata of a message as CloudEvents 1.0 attributes: one mapping for every transport.
//!
//! A protocol binding writes these names and values into the headers of its protocol (`ce-id`, `cloudEvents:id`, …), and reads them
//! from there. The payload is the event's data. The user's headers are sent next to the attributes and are not attributes.
//!
//! | attribute | meaning |
//! |---|---|
//! | `specversion`, `id`, `source`, `type` | required; the type is [`DEFAULT_TYPE`] for a message without one |
//! | `time`, `subject`, `datacontenttype` | time of staging, subject, content type of the payload |
//! | `partitionkey` | the ordering key |
//! | `correlationid`, `causationid`, `traceparent`, `tracestate` | causality and trace |
//! | `tenantid`, `hlc` | Postrider's extensions |
//!
//! **No sender is trusted.** Received attributes are validated by the same rules as staged ones; a message that breaks a rule is
//! undecodable. Only an invalid `traceparent` or `tracestate` is dropped, as their standard demands: a trace is not worth a message.

pub mod rfc3339;

use crate::{
    EventType, Invalid, Message, MessageId, OrderingKey, SubjectId, TenantId, Text,
    limits::{self, Charset},
    message::{Trail, is_traceparent, is_tracestate},
};
use std::{collections::BTreeMap, time::SystemTime};

/// The CloudEvents type of a message without an event type.
pub const DEFAULT_TYPE: &str = "postrider.message";

const SPEC_VERSION: &str = "1.0";

/// The known attribute names as they are written. Reading ignores case.
const KNOWN: [&str; 14] = [
    "specversion",
    "id",
    "source",
    "type",
    "time",
    "subject",
    "datacontenttype",
    "partitionkey",
    "correlationid",
    "causationid",
    "traceparent",
    "tracestate",
    "tenantid",
    "hlc",
];

/// The attributes of `message`, which was staged at `time` by the application at the URI `source`. Unknown
/// values are left out.
///
/// ```
/// # use postrider_core::{Message, MessageId, cloudevents};
/// # use std::time::SystemTime;
/// let message = Message::builder("orders").event_type("order.placed").key("order-17").build()?;
/// let id = MessageId::at(SystemTime::UNIX_EPOCH);
/// let attributes = cloudevents::attributes(&message, id, "/shop", SystemTime::UNIX_EPOCH);
/// assert!(attributes.contains(&("time", "1970-01-01T00:00:00.000Z".into())));
/// assert!(attributes.contains(&("partitionkey", "order-17".into())));
///
/// let envelope = cloudevents::Envelope::from_attributes(attributes)?;
/// assert_eq!(envelope.message_id(), Some(id));
/// assert_eq!(envelope.key.as_ref(), message.key());
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
pub fn attributes(
    message: &Message,
    id: MessageId,
    source: impl Into<Text>,
    time: SystemTime,
) -> Vec<(&'static str, Text)> {
    let Trail { correlation_id, causation_id, traceparent, tracestate, hlc } = message.trail();
    let own = |text: &Option<String>| text.clone().map(Text::from);
    // Most messages have these and one or two more.
    let mut known = Vec::with_capacity(8);
    known.push(("specversion", SPEC_VERSION.into()));
    known.push(("id", id.to_string().into()));
    known.push(("source", source.into()));
    known.push(("type", message.event_type().map_or(DEFAULT_TYPE.into(), Text::from)));
    known.push(("time", rfc3339::format(time).into()));
    known.push(("datacontenttype", message.content_type_text()));
    let optional = [
        ("subject", message.subject().map(Text::from)),
        ("partitionkey", message.key().map(Text::from)),
        ("correlationid", own(correlation_id)),
        ("causationid", own(causation_id)),
        ("traceparent", own(traceparent)),
        ("tracestate", own(tracestate)),
        ("tenantid", message.tenant().map(Text::from)),
        ("hlc", hlc.map(|hlc| hlc.to_string().into())),
    ];
    known.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    known
}

/// The metadata of a received message, from its attributes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Envelope {
    /// The id, unique within its source.
    pub id: String,
    /// The source.
    pub source: String,
    /// The event type, if any.
    pub event_type: Option<EventType>,
    /// The time.
    pub time: Option<SystemTime>,
    /// The subject.
    pub subject: Option<SubjectId>,
    /// The content type of the payload.
    pub content_type: Option<String>,
    /// The ordering key.
    pub key: Option<OrderingKey>,
    /// The tenant.
    pub tenant: Option<TenantId>,
    /// Causality and trace.
    pub trail: Trail,
}

impl Envelope {
    /// Reads attributes, with names in any case and without a protocol's prefix. Unknown attributes are ignored, and empty ones count
    /// as missing.
    ///
    /// # Errors
    /// When it is not CloudEvents 1.0, lacks an id, a source or a type, or has an invalid value.
    pub fn from_attributes<N: AsRef<str>, V: AsRef<str>>(
        attributes: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, Invalid> {
        let mut found = BTreeMap::new();
        for (name, value) in attributes {
            let known = KNOWN.into_iter().find(|known| known.eq_ignore_ascii_case(name.as_ref()));
            let Some(name) = known.filter(|_| !value.as_ref().is_empty()) else { continue };
            let value = value.as_ref().to_owned();
            if found.get(name).is_some_and(|first| *first != value) {
                return Err(Invalid::rule(name, "is given twice, with different values"));
            }
            found.insert(name, value);
        }
        let mut take = |name| found.remove(name);
        let required = |name, value: Option<String>| {
            value.ok_or_else(|| Invalid::rule(name, "is missing; CloudEvents 1.0 demands it"))
        };

        let version = required("specversion", take("specversion"))?;
        if version != SPEC_VERSION {
            let version = limits::truncated(&version, 16);
            return Err(Invalid::rule(
                "specversion",
                format!("{version:?} is not supported; {SPEC_VERSION} is"),
            ));
        }
        let id = required("id", take("id"))?;
        limits::name("id", Charset::Line, &id)?;
        let source = required("source", take("source"))?;
        check_source(&source)?;
        let event_type = EventType::new(required("type", take("type"))?)?;
        let content_type = take("datacontenttype");
        let traceparent = take("traceparent").filter(|text| is_traceparent(text));
        let tracestate = take("tracestate").filter(|text| traceparent.is_some() && is_tracestate(text));
        let trail = Trail {
            correlation_id: take("correlationid"),
            causation_id: take("causationid"),
            traceparent,
            tracestate,
            hlc: take("hlc").map(|text| text.parse()).transpose()?,
        };
        for (name, value) in [
            ("datacontenttype", &content_type),
            ("correlationid", &trail.correlation_id),
            ("causationid", &trail.causation_id),
        ] {
            if let Some(value) = value {
                limits::name(name, Charset::Line, value)?;
            }
        }
        Ok(Self {
            id,
            source,
            event_type: Some(event_type).filter(|event_type| event_type.as_str() != DEFAULT_TYPE),
            time: take("time").map(|text| rfc3339::parse(&text)).transpose()?,
            subject: take("subject").map(SubjectId::new).transpose()?,
            content_type,
            key: take("partitionkey").map(OrderingKey::new).transpose()?,
            tenant: take("tenantid").map(TenantId::new).transpose()?,
            trail,
        })
    }

    /// The id as a message id, if it is a UUID. Other senders may use any text.
    pub fn message_id(&self) -> Option<MessageId> {
        self.id.parse().ok()
    }
}

/// Validates a CloudEvents source: a URI reference such as `/shop` or `https://shop.example/orders`.
///
/// # Errors
/// When it is empty, longer than 8 KiB, or has white space or control characters.
pub fn check_source(source: &str) -> Result<(), Invalid> {
    limits::text("source", limits::HEADER_VALUE_BYTES, Charset::Word, source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hlc;
    use proptest::prelude::*;
    use std::time::Duration;

    fn staged_at() -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(1_784_021_400_123)
    }

    fn id() -> MessageId {
        "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
    }

    fn full() -> Message {
        Message::builder("orders")
            .event_type("order.placed")
            .content_type("text/plain")
            .key("order-17")
            .tenant("acme")
            .subject("customer 3")
            .correlation_id("request-1")
            .causation_id("message-0")
            .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
            .tracestate("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
            .hlc(Hlc::from_bits(1_784_021_400_123 << 16 | 7))
            .header("x-own", "not an attribute")
            .build()
            .unwrap()
    }

    fn minimal() -> Vec<(&'static str, &'static str)> {
        vec![("specversion", "1.0"), ("id", "1"), ("source", "/s"), ("type", "t")]
    }

    fn refusal(attributes: Vec<(&str, &str)>) -> String {
        Envelope::from_attributes(attributes).unwrap_err().to_string()
    }

    #[test]
    fn message_maps_to_cloudevents_attributes() {
        let message = full();
        let attributes = attributes(&message, id(), "/shop", staged_at());
        let lines: Vec<_> = attributes.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        specversion: 1.0
        id: 01890a5d-ac96-774b-bcce-b302099a8057
        source: /shop
        type: order.placed
        time: 2026-07-14T09:30:00.123Z
        datacontenttype: text/plain
        subject: customer 3
        partitionkey: order-17
        correlationid: request-1
        causationid: message-0
        traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
        tracestate: rojo=00f067aa0ba902b7,congo=t61rcWkgMzE
        tenantid: acme
        hlc: 001784021400123.00007
        "#);
        for (name, _) in &attributes {
            assert!(KNOWN.contains(name), "{name} can be read back");
            assert!(
                name.len() <= 20 && name.bytes().all(|b| b.is_ascii_lowercase()),
                "{name} is a legal name"
            );
        }
        assert_eq!(attributes.len(), KNOWN.len());
    }

    #[test]
    fn full_message_round_trips() {
        let message = full();
        let time = staged_at();
        let envelope = Envelope::from_attributes(attributes(&message, id(), "/shop", time)).unwrap();
        assert_eq!(envelope.message_id(), Some(id()));
        assert_eq!(envelope.source, "/shop");
        assert_eq!(envelope.time, Some(time));
        assert_eq!(envelope.event_type.as_ref(), message.event_type());
        assert_eq!(envelope.content_type.as_deref(), Some(message.content_type()));
        assert_eq!(envelope.key.as_ref(), message.key());
        assert_eq!(envelope.tenant.as_ref(), message.tenant());
        assert_eq!(envelope.subject.as_ref(), message.subject());
        assert_eq!(&envelope.trail, message.trail());
    }

    #[test]
    fn minimal_message_round_trips() {
        let message = Message::builder("orders").build().unwrap();
        let attributes = attributes(&message, id(), "/shop", SystemTime::UNIX_EPOCH);
        assert_eq!(attributes.len(), 6);
        let envelope = Envelope::from_attributes(attributes).unwrap();
        assert_eq!(envelope.event_type, None);
        assert!(envelope.trail.is_empty());
    }

    #[test]
    fn attribute_names_ignore_case_and_unknown_or_empty_are_ignored() {
        let mut attributes = minimal();
        attributes.extend([("Subject", "s"), ("unknown", "\0"), ("tenantid", ""), ("ID", "1")]);
        let envelope = Envelope::from_attributes(attributes).unwrap();
        assert_eq!(envelope.subject.unwrap().as_str(), "s");
        assert_eq!((envelope.tenant, envelope.id.as_str()), (None, "1"));
    }

    #[test]
    fn attributes_that_break_the_specification_are_rejected() {
        let mut refusals: Vec<_> = ["specversion", "id", "source", "type"]
            .map(|missing| refusal(minimal().into_iter().filter(|(name, _)| *name != missing).collect()))
            .into();
        refusals.extend(
            [
                ("id", "2"),
                ("time", "yesterday"),
                ("hlc", "7"),
                ("subject", "two\nlines"),
                ("correlationid", "a\0b"),
                ("causationid", "a\0b"),
                ("datacontenttype", "text\r/plain"),
            ]
            .map(|wrong| refusal(minimal().into_iter().chain([wrong]).collect())),
        );
        refusals.push(refusal(vec![("specversion", "0.3")]));
        refusals.push(refusal(vec![("specversion", "1.0"), ("id", "\n")]));
        refusals.push(refusal(vec![("specversion", "1.0"), ("id", "1"), ("source", "my shop")]));
        insta::assert_snapshot!(refusals.join("\n"), @r#"
        specversion: is missing; CloudEvents 1.0 demands it
        id: is missing; CloudEvents 1.0 demands it
        source: is missing; CloudEvents 1.0 demands it
        type: is missing; CloudEvents 1.0 demands it
        id: is given twice, with different values
        time: "yesterday" is not a time such as 2026-07-14T09:30:00.000Z
        hlc: is not a clock reading such as 001784021400123.00007
        subject: contains '\n' at byte 3; control characters are not allowed
        correlationid: contains '\0' at byte 1; control characters are not allowed
        causationid: contains '\0' at byte 1; control characters are not allowed
        datacontenttype: contains '\r' at byte 4; control characters are not allowed
        specversion: "0.3" is not supported; 1.0 is
        id: contains '\n' at byte 0; control characters are not allowed
        source: contains ' ' at byte 2; neither white space nor control characters are allowed
        "#);
    }

    #[test]
    fn invalid_trace_is_dropped_and_the_message_kept() {
        let trace = |parent: &str, state: &str| {
            let attributes = minimal().into_iter().chain([("traceparent", parent), ("tracestate", state)]);
            let trail = Envelope::from_attributes(attributes).unwrap().trail;
            (trail.traceparent.is_some(), trail.tracestate.is_some())
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(trace(good, "a=1"), (true, true));
        assert_eq!(trace(good, "a=1\n"), (true, false));
        assert_eq!(trace(good, &format!("a={}", "1".repeat(511))), (true, false));
        assert_eq!(trace("00-nonsense", "a=1"), (false, false), "a state means nothing alone");
    }

    proptest! {
        #[test]
        fn reading_never_panics(
            attributes: Vec<(String, String)>,
            values in prop::collection::vec(prop_oneof![any::<String>(), "[0-9T:.Z+-]{0,30}"], KNOWN.len()),
        ) {
            let _ = Envelope::from_attributes(attributes);
            let _ = Envelope::from_attributes(KNOWN.into_iter().zip(&values));
            let named = minimal().into_iter().chain(KNOWN[4..].iter().copied().zip(values.iter().map(String::as_str)));
            let _ = Envelope::from_attributes(named);
        }
    }
}
