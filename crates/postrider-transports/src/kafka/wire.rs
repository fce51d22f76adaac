//! Maps messages to Kafka records and back: topic, key and headers.

use postrider_core::{Incoming, Outgoing, PublishError};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};

/// Kafka's limit for the name of a topic.
const NAME_BYTES: usize = 249;
const CONTENT_TYPE: &str = "content-type";

/// Checks the name of a topic; the error says what is wrong with it.
pub(super) fn check_topic(topic: &str) -> Result<(), String> {
    check_name(topic, "a valid topic name")
}

/// Checks a name to which Kafka's rules for topic names apply.
pub(super) fn check_name(name: &str, of: &str) -> Result<(), String> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES || matches!(name, "." | "..") || !name.bytes().all(is_legal)
    {
        let start: String = name.chars().take(64).collect();
        return Err(format!(
            "{start:?} is not {of}: use 1 to {NAME_BYTES} letters, digits, dots, hyphens and underscores"
        ));
    }
    Ok(())
}

/// The headers of a record: attributes under the names of the CloudEvents binding, everything else under its own name.
pub(super) fn headers(outgoing: &Outgoing) -> Result<OwnedHeaders, PublishError> {
    let names: Vec<String> = outgoing.attributes.iter().map(|(name, _)| format!("ce_{name}")).collect();
    let mut headers = OwnedHeaders::new_with_capacity(1 + names.len() + outgoing.headers.len());
    for (name, (_, value)) in names.iter().zip(&outgoing.attributes) {
        headers = headers.insert(Header { key: name, value: Some(value.as_str()) });
    }
    headers = headers.insert(Header { key: CONTENT_TYPE, value: Some(outgoing.content_type.as_str()) });
    for (name, value) in &outgoing.headers {
        // Kafka would carry both, and consumers would see one of them.
        let is = |reserved: &str| reserved.eq_ignore_ascii_case(name);
        if is(CONTENT_TYPE) || names.iter().any(|reserved| is(reserved)) {
            return Err(PublishError::reject(format!(
                "the header name {name:?} is reserved for Postrider; rename the header of the message"
            )));
        }
        headers = headers.insert(Header { key: name, value: Some(value) });
    }
    Ok(headers)
}

/// Reads a record of any producer. The first of several content types counts, and a key that is not UTF-8 is left out.
pub(super) fn read(message: &impl Message) -> Incoming {
    let mut incoming = Incoming::new(message.topic(), message.payload().unwrap_or_default().to_vec());
    incoming.key = message.key().and_then(|key| String::from_utf8(key.to_vec()).ok());
    for header in message.headers().into_iter().flat_map(Headers::iter) {
        let Some(value) = header.value else { continue };
        let value = String::from_utf8_lossy(value).into_owned();
        if header.key.eq_ignore_ascii_case(CONTENT_TYPE) {
            incoming.content_type.get_or_insert(value);
        } else if let Some(attribute) = header.key.strip_prefix("ce_") {
            incoming.attributes.push((attribute.to_owned(), value));
        } else {
            incoming.headers.push((header.key.to_owned(), value));
        }
    }
    incoming
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Format, Message, MessageId};
    use rdkafka::{Timestamp, message::OwnedMessage};
    use std::time::SystemTime;

    fn order(format: Format) -> Outgoing {
        let message =
            Message::builder("orders").event_type("order.placed").key("17").header("color", "ä€").json(&17);
        let now = SystemTime::now();
        let message = message.build().unwrap();
        Outgoing::write(&message, MessageId::at(now), now, "/shop", "orders".to_owned(), format).unwrap()
    }

    fn written(outgoing: &Outgoing) -> Vec<(String, String)> {
        let headers = headers(outgoing).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        headers.iter().map(|header| (header.key.to_owned(), text(header.value.unwrap()))).collect()
    }

    #[test]
    fn headers_prefix_attributes_and_keep_other_names() {
        let binary = written(&order(Format::Binary));
        let has = |name: &str, value: &str| binary.contains(&(name.to_owned(), value.to_owned()));
        assert!(has("ce_specversion", "1.0") && has("ce_type", "order.placed"), "{binary:?}");
        assert!(has("content-type", "application/json") && has("color", "ä€"), "{binary:?}");
        assert!(
            !binary.iter().any(|(name, _)| name == "ce_datacontenttype"),
            "the content type is the header content-type"
        );
        let structured = written(&order(Format::Structured));
        assert_eq!(structured[0].1, "application/cloudevents+json; charset=utf-8");
    }

    #[test]
    fn read_accepts_records_of_other_producers() {
        let mut headers = OwnedHeaders::new();
        for (key, value) in
            [("ce_type", Some(&b"t"[..])), ("Content-Type", Some(b"a/b")), ("x", Some(b"\xff")), ("y", None)]
        {
            headers = headers.insert(Header { key, value });
        }
        let owned = |payload: Option<&[u8]>, key: Option<&[u8]>, headers| {
            let (payload, key) = (payload.map(<[u8]>::to_vec), key.map(<[u8]>::to_vec));
            OwnedMessage::new(payload, key, "orders".to_owned(), Timestamp::NotAvailable, 0, 0, headers)
        };
        let read_back = read(&owned(Some(b"\xff"), Some(b"\xff"), Some(headers)));
        assert_eq!((&read_back.body[..], read_back.key), (&b"\xff"[..], None));
        assert_eq!(read_back.content_type.as_deref(), Some("a/b"));
        assert_eq!(read_back.attributes, [("type".to_owned(), "t".to_owned())]);
        assert_eq!(read_back.headers, [("x".to_owned(), "\u{fffd}".to_owned())]);
        assert_eq!(read(&owned(None, None, None)), Incoming::new("orders", ""));
    }

    #[test]
    fn headers_with_reserved_name_are_rejected() {
        for name in ["content-type", "Content-Type", "ce_id"] {
            let mut outgoing = order(Format::Binary);
            outgoing.headers.push((name.to_owned(), "x".to_owned()));
            assert!(matches!(headers(&outgoing), Err(PublishError::Reject { .. })), "{name}");
        }
    }

    #[test]
    fn check_topic_refuses_invalid_names() {
        for topic in ["", ".", "..", "a b", "a/b", "größe", "a\0", &"t".repeat(NAME_BYTES + 1)] {
            assert!(check_topic(topic).is_err(), "{topic:?}");
        }
        for topic in ["orders", "shop.order_placed-1", &"t".repeat(NAME_BYTES)] {
            check_topic(topic).unwrap();
        }
    }
}
