//! A message as it goes over the wire.

use crate::{EventType, Invalid, Message, MessageId, OrderingKey, Text, cloudevents, message::Trail};
use bytes::Bytes;
use serde_json::value::RawValue;
use std::{borrow::Cow, time::SystemTime};

/// The wire format of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// CloudEvents 1.0, binary mode: the payload verbatim, the attributes in the transport's headers.
    #[default]
    Binary,
    /// CloudEvents 1.0, structured mode: one JSON document with attributes and data.
    Structured,
    /// The payload verbatim; attributes in headers that begin with `postrider-`.
    Plain,
    /// As Debezium's outbox event router writes it: the payload verbatim and a header `id`; otherwise as `Plain`. Its topics are named
    /// `outbox.event.{type}`.
    Debezium,
}

/// A message as it goes over the wire, up to the names that the protocol binding gives to the attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outgoing {
    /// The message id, the same for each redelivery.
    pub id: MessageId,
    /// The destination address: exchange and routing key, subject, topic, stream or URL.
    pub destination: String,
    /// The ordering key.
    pub key: Option<OrderingKey>,
    /// The event type.
    pub event_type: Option<EventType>,
    /// The correlation id.
    pub correlation_id: Option<String>,
    /// The time of staging.
    pub staged_at: SystemTime,
    /// The content type of the body.
    pub content_type: Text,
    /// The payload, or the whole event in [`Format::Structured`].
    pub body: Bytes,
    /// CloudEvents attributes, to be written with the prefix of the transport's binding. Only in [`Format::Binary`].
    pub attributes: Vec<(&'static str, Text)>,
    /// Headers to be written under their own names.
    pub headers: Vec<(String, String)>,
}

impl Outgoing {
    /// Writes `message`, which was staged at `staged_at` by the application at the URI `source`.
    ///
    /// ```
    /// # use postrider_core::{Format, Message, MessageId, Outgoing};
    /// # use std::time::SystemTime;
    /// let message = Message::builder("orders").event_type("order.placed").json(&17).header("color", "blue").build()?;
    /// let id = MessageId::at(SystemTime::UNIX_EPOCH);
    /// let write = |format| Outgoing::write(&message, id, SystemTime::UNIX_EPOCH, "/shop", "orders".into(), format);
    ///
    /// let binary = write(Format::Binary)?;
    /// assert_eq!(binary.body, "17");
    /// assert_eq!(binary.content_type, "application/json");
    /// assert!(binary.attributes.contains(&("type", "order.placed".into())));
    ///
    /// let structured = write(Format::Structured)?;
    /// assert!(structured.body.ends_with(br#""data":17}"#));
    /// # Ok::<(), postrider_core::Invalid>(())
    /// ```
    ///
    /// # Errors
    /// When the format is structured and a payload that is declared as JSON is not valid JSON.
    pub fn write(
        message: &Message,
        id: MessageId,
        staged_at: SystemTime,
        source: impl Into<Text>,
        destination: String,
        format: Format,
    ) -> Result<Self, Invalid> {
        let mut known = cloudevents::attributes(message, id, source, staged_at);
        let mut outgoing = Self {
            id,
            destination,
            key: message.key().cloned(),
            event_type: message.event_type().cloned(),
            correlation_id: message.trail().correlation_id.clone(),
            staged_at,
            content_type: message.content_type_text(),
            body: message.payload().clone(),
            attributes: Vec::new(),
            headers: own_headers(message),
        };
        match format {
            Format::Binary => {
                known.retain(|(name, _)| *name != CONTENT_TYPE);
                outgoing.attributes = known;
            }
            Format::Structured => {
                outgoing.body = structured(&known, message)?;
                outgoing.content_type = STRUCTURED.into();
            }
            Format::Plain => outgoing.headers.extend(plain(known)),
            Format::Debezium => {
                // Its readers take this header for the identity, whatever the producer meant by one of that name.
                outgoing.headers.retain(|(name, _)| name != "id");
                outgoing.headers.push(("id".to_owned(), id.to_string()));
                outgoing.headers.extend(plain(known));
            }
        }
        Ok(outgoing)
    }

    /// The key that determines its partition or group: the ordering key, or else the id, which spreads messages evenly.
    pub fn partition_key(&self) -> Cow<'_, str> {
        match &self.key {
            Some(key) => key.as_str().into(),
            None => self.id.to_string().into(),
        }
    }

    /// The size of body, attributes and headers in bytes.
    pub fn size(&self) -> usize {
        let attributes = self.attributes.iter().map(|(name, value)| name.len() + value.len());
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        self.body.len() + self.content_type.len() + attributes.chain(headers).sum::<usize>()
    }
}

const CONTENT_TYPE: &str = "datacontenttype";
/// The content type of [`Format::Structured`].
pub const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";

/// Headers that keep their names in every format: the user's headers, and the W3C trace context for receivers without CloudEvents.
fn own_headers(message: &Message) -> Vec<(String, String)> {
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let Trail { traceparent, tracestate, .. } = message.trail();
    let trace = [("traceparent", traceparent), ("tracestate", tracestate)];
    let trace = trace.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)));
    message.headers().iter().chain(trace).map(own).collect()
}

fn plain(known: Vec<(&'static str, Text)>) -> impl Iterator<Item = (String, String)> {
    let beside = known
        .into_iter()
        .filter(|(name, _)| !matches!(*name, "specversion" | CONTENT_TYPE | "traceparent" | "tracestate"));
    beside.map(|(name, value)| (format!("postrider-{name}"), value.into()))
}

fn structured(known: &[(&'static str, Text)], message: &Message) -> Result<Bytes, Invalid> {
    let payload = message.payload();
    let mut event = Vec::with_capacity(payload.len() + 512);
    let mut sign = b'{';
    for (name, value) in known {
        event.push(sign);
        write_json(&mut event, name);
        event.push(b':');
        write_json(&mut event, value);
        sign = b',';
    }
    if is_json(message.content_type()) {
        // Checked, and then written byte for byte.
        let data: &RawValue = serde_json::from_slice(payload).map_err(|error| {
            Invalid::rule(
                "payload",
                format!("declared as {}, but cannot be parsed: {error}", message.content_type()),
            )
        })?;
        event.extend_from_slice(br#","data":"#);
        event.extend_from_slice(data.get().as_bytes());
    } else if !payload.is_empty() {
        event.extend_from_slice(br#","data_base64":"#);
        write_json(&mut event, &base64(payload));
    }
    event.push(b'}');
    Ok(event.into())
}

fn write_json(event: &mut Vec<u8>, text: &str) {
    // Text cannot fail to be written to memory.
    serde_json::to_writer(event, text).ok();
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}

/// Whether a payload of this type can be embedded in a JSON document verbatim.
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence == "text/json" || essence.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn written(builder: crate::MessageBuilder, format: Format) -> Result<Outgoing, Invalid> {
        let staged_at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_784_021_400_123);
        let id = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        Outgoing::write(&builder.build().unwrap(), id, staged_at, "/shop", "orders".to_owned(), format)
    }

    fn order() -> crate::MessageBuilder {
        Message::builder("orders")
            .event_type("order.placed")
            .key("order-17")
            .tenant("acme")
            .header("color", "blue")
            .correlation_id("checkout-3")
            .causation_id("click-9")
            .traceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
            .content_type("application/json")
            .payload(r#"{"total": 1.50}"#)
    }

    #[test]
    fn every_format_carries_all_fields() {
        insta::assert_debug_snapshot!("binary", written(order(), Format::Binary).unwrap());
        insta::assert_debug_snapshot!("structured", written(order(), Format::Structured).unwrap());
        insta::assert_debug_snapshot!("plain", written(order(), Format::Plain).unwrap());
        insta::assert_debug_snapshot!("debezium", written(order(), Format::Debezium).unwrap());
    }

    #[test]
    fn structured_event_is_decoded_by_the_same_rules() {
        let event = written(order(), Format::Structured).unwrap();
        let document: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&event.body).unwrap();
        assert!(event.body.ends_with(br#","data":{"total": 1.50}}"#), "the payload is not written anew");
        let attributes = document.iter().filter_map(|(name, value)| Some((name, value.as_str()?)));
        let envelope = cloudevents::Envelope::from_attributes(attributes).unwrap();
        assert_eq!(envelope.message_id(), Some(event.id));
        assert_eq!(envelope.key, event.key);
    }

    #[test]
    fn binary_payload_is_base64_in_a_structured_event() {
        let bytes = Message::builder("orders").content_type("image/png").payload(vec![0, 159, 146, 150]);
        let event = written(bytes, Format::Structured).unwrap();
        assert!(event.body.ends_with(br#","data_base64":"AJ+Slg=="}"#), "{:?}", event.body);
    }

    #[test]
    fn payload_declared_as_json_but_invalid_is_rejected_in_structured_format() {
        let broken = || Message::builder("orders").content_type("application/json").payload("{");
        assert_eq!(written(broken(), Format::Binary).unwrap().body, "{");
        let error = written(broken(), Format::Structured).unwrap_err().to_string();
        assert!(
            error.starts_with("payload: declared as application/json, but cannot be parsed: "),
            "{error}"
        );
    }

    #[test]
    fn partition_key_without_ordering_key_is_the_id() {
        let event = written(Message::builder("orders"), Format::Binary).unwrap();
        assert_eq!(event.partition_key(), "01890a5d-ac96-774b-bcce-b302099a8057");
        assert_eq!(written(order(), Format::Binary).unwrap().partition_key(), "order-17");
    }

    #[test]
    fn size_counts_body_attributes_and_headers() {
        let small = written(Message::builder("orders").payload("x"), Format::Plain).unwrap();
        let large =
            written(Message::builder("orders").payload("x".repeat(1000)).header("a", "b"), Format::Plain)
                .unwrap();
        assert_eq!(large.size(), small.size() + 999 + 2);
    }
}
